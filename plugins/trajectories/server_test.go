package trajectories

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	alone()
	goleak.VerifyTestMain(m)
}

// fixture is a server in this process with a clock that the test moves.
type fixture struct {
	*Server
	t    *testing.T
	h    http.Handler
	skew time.Duration
	mu   sync.Mutex
}

func newFixture(t *testing.T, cfg Config) *fixture {
	t.Helper()
	cfg.AllowedHosts = append(cfg.AllowedHosts, "example.com") // the Host of httptest
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{Server: s, t: t, h: s.Handler()}
	began := time.Now()
	s.state.now = func() time.Time {
		f.mu.Lock()
		defer f.mu.Unlock()
		return began.Add(f.skew)
	}
	for i := range s.state.doc.Envs {
		s.state.seen[i] = began
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) wait(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.skew += d
}

// call makes a request without a network and decodes its reply.
func (f *fixture) call(method, path, body string, headers ...string) (int, map[string]any) {
	f.t.Helper()
	r := httptest.NewRequestWithContext(f.t.Context(), method, path, strings.NewReader(body))
	r.Host = "127.0.0.1"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, r)
	var out map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &out)
	return w.Code, out
}

func (f *fixture) ok(method, path, body string) map[string]any {
	f.t.Helper()
	code, out := f.call(method, path, body)
	if code != http.StatusOK {
		f.t.Fatalf("%s %s %s answered %d %v", method, path, body, code, out)
	}
	return out
}

func (f *fixture) trainer(batchSize int) {
	f.t.Helper()
	f.ok("POST", "/register", fmt.Sprintf(`{"wandb_group":"g","batch_size":%d,"max_token_len":9,"checkpoint_dir":"","num_steps":100}`, batchSize))
	f.ok("GET", "/batch", "")
}

func (f *fixture) env(name string, groupSize int, more string) int {
	f.t.Helper()
	out := f.ok("POST", "/register-env", fmt.Sprintf(`{"max_token_length":9,"desired_name":%q,"group_size":%d,%s}`, name,
		groupSize, more))
	return int(out["env_id"].(float64))
}

// post sends a group of which every token is its mark.
func (f *fixture) post(mark, size int, more string) map[string]any {
	f.t.Helper()
	return f.ok("POST", "/scored_data", groupText(mark, size, more))
}

func groupText(mark, size int, more string) string {
	seq := strings.TrimSuffix(strings.Repeat(fmt.Sprintf("[%d],", mark), size), ",")
	return fmt.Sprintf(`{"tokens":[%s],"masks":[%s],"scores":[%s]%s}`, seq, seq,
		strings.TrimSuffix(strings.Repeat("1,", size), ","), more)
}

func marksOf(batch map[string]any) []int {
	var out []int
	list, _ := batch["batch"].([]any)
	for _, g := range list {
		out = append(out, int(g.(map[string]any)["tokens"].([]any)[0].([]any)[0].(float64)))
	}
	return out
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s is %s, expected %s", what, g, w)
	}
}

// An environment that samples only what is asked for sees from when on, and until when, the trainer waits.
func TestTheTrainerWaitsForABatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{Dir: t.TempDir()})
	waits := func(when string, want bool) {
		t.Helper()
		equal(t, "trainer_waits "+when, f.ok("GET", "/policy_version", "")["trainer_waits"], want)
	}
	f.ok("POST", "/register", `{"wandb_group":"g","batch_size":4,"max_token_len":9,"checkpoint_dir":"","num_steps":9}`)
	waits("before it asks", false)
	f.ok("GET", "/batch", "")
	waits("once it has asked", true)
	f.post(0, 4, "")
	waits("until it has the batch", true)
	f.ok("GET", "/batch", "")
	waits("while it trains", false)
	f.ok("GET", "/batch", "")
	waits("for the next one", true)
}

func TestEverythingComesBackAfterARestart(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir()}
	f := newFixture(t, cfg)
	f.trainer(4)
	e := f.env("e", 4, `"weight":2.5,"min_batch_allocation":0.5`)
	for i := range 3 {
		f.post(i, 4, fmt.Sprintf(`,"env_id":%d,"policy_version":[%d,9]`, e, i))
	}
	f.post(10, 3, fmt.Sprintf(`,"env_id":%d`, e))
	lease := f.ok("GET", "/batch?lease=60s", "")
	equal(t, "the leased batch", marksOf(lease), []int{0})
	equal(t, "a plain batch", marksOf(f.ok("GET", "/batch", "")), []int{1})
	f.ok("POST", "/policy_version", `{"version":7}`)
	before := []any{f.ok("GET", "/status", ""), f.ok("GET", "/info", ""), f.ok("GET", "/wandb_info", ""),
		f.ok("GET", "/status-env", `{"env_id":0}`)}
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	f = newFixture(t, cfg)
	after := []any{f.ok("GET", "/status", ""), f.ok("GET", "/info", ""), f.ok("GET", "/wandb_info", ""),
		f.ok("GET", "/status-env", `{"env_id":0}`)}
	equal(t, "what clients see", after, before)
	equal(t, "the version", f.ok("GET", "/policy_version", "")["version"], 7)
	equal(t, "the buffer goes on", f.post(11, 1, `,"env_id":0`)["buffer_size"], 0)
	equal(t, "the oldest that waits", marksOf(f.ok("GET", "/batch", "")), []int{2})
	equal(t, "the completed buffer", marksOf(f.ok("GET", "/batch", "")), []int{10, 11})
	equal(t, "the lease lives on", f.ok("GET", "/batch", "")["batch"], nil)
	equal(t, "its acknowledgement", f.ok("POST", "/batch/"+lease["id"].(string)+"/ack", "")["repeated"], false)
	equal(t, "the step", f.ok("GET", "/status", "")["current_step"], 4)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = newFixture(t, cfg)
	equal(t, "nothing is left", f.ok("GET", "/groups", "")["groups"], "[]")
	equal(t, "an acknowledgement repeated after a restart", f.ok("POST", "/batch/"+lease["id"].(string)+"/ack",
		"")["repeated"], true)
}

//docs:survival.md a slow sample wedges the queue
//docs:trajectories.md A leased batch is trained once
func TestALeaseThatRunsOutGoesToTheNextCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	f.trainer(2)
	f.post(1, 2, "")
	first := f.ok("GET", "/batch?lease=30s", "")["id"].(string)
	f.wait(29 * time.Second)
	equal(t, "before it runs out", f.ok("GET", "/batch", "")["batch"], nil)
	f.wait(2 * time.Second)
	second := f.ok("GET", "/batch?lease=30s", "")
	equal(t, "after", marksOf(second), []int{1})
	if code, _ := f.call("POST", "/batch/"+first+"/ack", ""); code != http.StatusConflict {
		t.Errorf("acknowledging the lost lease answered %d, expected 409", code)
	}
	f.wait(time.Hour) // late, but no other trainer has it
	f.ok("POST", "/batch/"+second["id"].(string)+"/ack", "")
	equal(t, "the step", f.ok("GET", "/status", "")["current_step"], 1)
}

func TestALeaseDoesNotFollowTheClock(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir()}
	f := newFixture(t, cfg)
	f.trainer(2)
	f.post(1, 2, "")
	id := f.ok("GET", "/batch?lease=30s", "")["id"].(string)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = newFixture(t, cfg) // whatever the wall clock did meanwhile, the lease restarts
	f.wait(29 * time.Second)
	equal(t, "a restarted lease", f.ok("GET", "/batch", "")["batch"], nil)
	f.wait(-1000 * time.Hour)
	equal(t, "after a jump back", f.ok("GET", "/batch", "")["batch"], nil)
	f.ok("POST", "/batch/"+id+"/ack", "")
}

//docs:troubleshooting.md Staleness of twice the setting
func TestStaleGroupsAreDroppedAndCounted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{LimitStaleness: true, MaxStaleness: 2})
	f.trainer(2)
	f.env("e", 2, `"weight":1`)
	for i := range 4 {
		f.post(i, 2, fmt.Sprintf(`,"env_id":0,"policy_version":[%d,%d]`, i, i+5))
	}
	f.post(9, 2, `,"env_id":0`)
	if err := f.SetPolicyVersion(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	f.post(1, 2, `,"env_id":0,"policy_version":1`)
	equal(t, "what is left", f.ok("GET", "/status", "")["queue_size"], 3)
	equal(t, "the oldest that is fresh enough", marksOf(f.ok("GET", "/batch", "")), []int{2})
	report := f.ok("GET", "/environments", "")["environments"].([]any)[0].(map[string]any)
	equal(t, "the drops", report["dropped"], "map[stale:3]")
	equal(t, "the drop rate", report["drop_rate"], 0.5)
	equal(t, "the lag", report["lag"], 2)
}

// A sync block posts a limit of its own; the tighter one counts, also after a restart.
func TestALimitThatComesWithTheVersionCounts(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir()}
	f := newFixture(t, cfg)
	f.trainer(2)
	f.env("e", 2, `"weight":1`)
	for i := range 4 {
		f.post(i, 2, fmt.Sprintf(`,"env_id":0,"policy_version":%d`, i))
	}
	f.ok("POST", "/policy_version", `{"version":4,"max_staleness":2}`)
	equal(t, "the limit", f.ok("GET", "/policy_version", "")["max_staleness"], 2)
	equal(t, "what is left", f.ok("GET", "/status", "")["queue_size"], 2)
	f.ok("POST", "/policy_version", `{"version":5}`)
	equal(t, "what is left of the next version", f.ok("GET", "/status", "")["queue_size"], 1)
	if err := f.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg.LimitStaleness, cfg.MaxStaleness = true, 100
	f = newFixture(t, cfg)
	f.ok("POST", "/policy_version", `{"version":6}`)
	equal(t, "what is left under a configured limit that is looser", f.ok("GET", "/status", "")["queue_size"], 0)
}

//docs:survival.md a slow sample wedges the queue
func TestASilentEnvironmentNoLongerCounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{EnvironmentTimeout: time.Minute})
	f.trainer(4)
	one, two := f.env("one", 2, `"weight":1`), f.env("two", 2, `"weight":1,"min_batch_allocation":0.5`)
	f.post(1, 2, fmt.Sprintf(`,"env_id":%d`, one))
	f.post(2, 2, fmt.Sprintf(`,"env_id":%d`, one))
	status := func() map[string]any { return f.ok("GET", "/status-env", fmt.Sprintf(`{"env_id":%d}`, one)) }
	equal(t, "the weight beside another", status()["env_weight"], 0.5)
	equal(t, "a batch without what two claims", f.ok("GET", "/batch", "")["batch"], nil)
	f.wait(2 * time.Minute)
	equal(t, "the weight once two is silent", status()["env_weight"], 1)
	equal(t, "the batch", marksOf(f.ok("GET", "/batch", "")), []int{1, 2})
	f.ok("GET", "/status-env", fmt.Sprintf(`{"env_id":%d}`, two))
	equal(t, "the weight once two is back", status()["env_weight"], 0.5)
}

//docs:survival.md a slow sample wedges the queue
func TestAFullQueueHoldsPostsAndLetsThemGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, holdsPostsAndLetsThemGo)
}

func holdsPostsAndLetsThemGo(t *testing.T) {
	f := newFixture(t, Config{MaxQueueGroups: 3, HoldTimeout: time.Minute})
	f.trainer(4)
	f.env("e", 2, `"weight":1`)
	for i := range 3 {
		f.post(i, 2, `,"env_id":0`)
	}
	if s := f.ok("GET", "/status-env", `{"env_id":0}`); s["queue_size"].(float64) < 6 {
		t.Errorf("a full queue reports %v groups, expected at least three batches of two groups so that the "+
			"environment pauses", s["queue_size"])
	}
	held := make(chan int, 1)
	go func() {
		r := httptest.NewRequestWithContext(context.Background(), "POST", "/scored_data",
			strings.NewReader(groupText(9, 2, "")))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, r)
		held <- w.Code
	}()
	synctest.Wait()
	if len(held) > 0 {
		t.Fatalf("a post into a full queue is answered with %d, expected it to be held", <-held)
	}
	equal(t, "the batch", marksOf(f.ok("GET", "/batch", "")), []int{0, 1})
	equal(t, "the answer once there is room", <-held, 200)
}

func TestAFullQueueRefusesInTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxQueueGroups: 2, HoldTimeout: time.Millisecond})
	f.trainer(4)
	f.post(1, 2, "")
	f.post(2, 2, "")
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/scored_data", strings.NewReader(groupText(3, 2, "")))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("answered %d with Retry-After %q, expected 503 and a time", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestAFullQueueWithoutABatchTakesWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxQueueGroups: 2, HoldTimeout: time.Millisecond})
	f.trainer(8)
	f.post(1, 3, "")
	f.post(2, 3, "")
	equal(t, "the group that completes the batch", f.post(3, 2, "")["status"], "received")
	equal(t, "the batch", marksOf(f.ok("GET", "/batch", "")), []int{1, 2, 3})
}

func TestThePauseDoesNotEndAnEnvironment(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxQueueGroups: 2})
	f.ok("POST", "/register", `{"wandb_group":"g","batch_size":4,"max_token_len":9,"checkpoint_dir":"","num_steps":2}`)
	f.ok("GET", "/batch", "")
	f.env("e", 2, `"weight":1`)
	f.post(1, 2, `,"env_id":0`)
	f.post(2, 2, `,"env_id":0`)
	s := f.ok("GET", "/status-env", `{"env_id":0}`)
	if end := s["current_step"].(float64) + float64(int(s["queue_size"].(float64))*2/4); end > 2 {
		t.Errorf("with %v the environment computes step %v of 2 and ends", s, end)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{Token: "user", AdminToken: "admin"})
	for _, c := range []struct {
		path, bearer string
		code         int
	}{
		{"/status", "", 401}, {"/status", "wrong", 401}, {"/status", "user", 200}, {"/status", "admin", 200},
		{"/t/user/status", "", 200}, {"/t/wrong/status", "", 401}, {"/t/wrong/status", "user", 401}, {"/", "", 200},
		{"/openapi.json", "", 200},
		{"/metrics", "", 401}, {"/reset_data", "user", 401}, {"/t/admin/reset_data", "", 200}, {"/t/user/nothing", "", 404},
	} {
		var headers []string
		if c.bearer != "" {
			headers = []string{"Authorization", "Bearer " + c.bearer}
		}
		if code, _ := f.call("GET", c.path, "", headers...); code != c.code {
			t.Errorf("%s with %q answered %d, expected %d", c.path, c.bearer, code, c.code)
		}
	}
}

func TestBeyondLoopbackATokenIsRequired(t *testing.T) {
	t.Parallel()
	far := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8000}
	near := &net.TCPAddr{IP: net.IPv6loopback, Port: 8000}
	for _, c := range []struct {
		cfg  Config
		addr net.Addr
		ok   bool
	}{{Config{}, far, false}, {Config{Token: "x"}, far, false},
		{Config{Token: "x", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, far, true},
		{Config{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, far, false}, {Config{Token: "x", Insecure: true}, far, true},
		{Config{Insecure: true}, far, true}, {Config{}, near, true}, {Config{}, &net.TCPAddr{IP: net.IPv4zero}, false}} {
		cfg, err := c.cfg.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		if err := cfg.checkAddress(c.addr); (err == nil) != c.ok {
			t.Errorf("token %q, insecure %v on %s: %v", cfg.Token, cfg.Insecure, c.addr, err)
		}
	}
	err := Run(t.Context(), RunOptions{Host: "0.0.0.0"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "--token") {
		t.Errorf("running on all addresses without a token: %v", err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{MaxBody: 1000})
	f.trainer(4)
	long := groupText(1, 4, `,"images":"`+strings.Repeat("x", 2000)+`"`)
	if code, _ := f.call("POST", "/scored_data", long); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a long body is answered with %d, expected 413", code)
	}
	var bomb bytes.Buffer
	bomb.Write(gzipped(bytes.Repeat([]byte(" "), 1<<20)))
	if bomb.Len() > 1100 {
		t.Skip("the body does not compress enough to pass the first limit")
	}
	if code, _ := f.call("POST", "/scored_data", bomb.String(), "Content-Encoding",
		"gzip"); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that decompresses to a million bytes is answered with %d, expected 413", code)
	}
}

func TestTheOpenAPIDocumentMatchesTheHandlers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil || doc.OpenAPI != "3.1.0" {
		t.Fatalf("the document is not OpenAPI 3.1: %v", err)
	}
	var described, handled []string
	for path, methods := range doc.Paths {
		for method := range methods {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	for path, methods := range f.routes() {
		for method := range methods {
			handled = append(handled, method+" "+path)
		}
	}
	slices.Sort(described)
	slices.Sort(handled)
	if !slices.Equal(described, handled) {
		t.Errorf("described: %v\nhandled: %v", described, handled)
	}
}

func TestMetricsTellWhatHappened(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Config{})
	f.trainer(2)
	f.env(`odd "name"`, 2, `"weight":1,"min_batch_allocation":1`)
	f.post(1, 2, `,"env_id":0,"policy_version":1`)
	f.post(2, 1, `,"env_id":0`)
	f.ok("POST", "/policy_version", `{"version":3}`)
	f.call("POST", "/scored_data", "{}")
	f.ok("GET", "/batch", "")
	w := httptest.NewRecorder()
	f.h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	page := w.Body.String()
	for _, line := range []string{
		`recipe_trajectories_groups_in_total{env="odd \"name\"_0"} 2`,
		`recipe_trajectories_groups_out_total{env="odd \"name\"_0"} 1`,
		`recipe_trajectories_staleness_sum{env="odd \"name\"_0"} 2`, `recipe_trajectories_buffered_sequences 1`,
		`recipe_trajectories_step 1`,
		`recipe_trajectories_rejected_total{reason="invalid"} 1`,
		`recipe_trajectories_minimum_missing_sequences{env="odd \"name\"_0"} 2`,
		`recipe_trajectories_request_seconds_count{route="/scored_data"} 3`, `recipe_trajectories_policy_version 3`,
		`recipe_trajectories_request_seconds_bucket{route="/scored_data",le="+Inf"} 3`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

func TestBatchesAreCompressedForClientsElsewhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ compression, from, accept, want string }{
		{"auto", "127.0.0.1:5", "gzip", ""}, {"auto", "10.0.0.1:5", "gzip, deflate", "gzip"},
		{"auto", "10.0.0.1:5", "deflate", ""},
		{"always", "127.0.0.1:5", "gzip;q=0.5, zstd", "zstd"}, {"always", "127.0.0.1:5", "gzip;q=0", ""},
		{"never", "10.0.0.1:5", "gzip", ""},
	} {
		f := newFixture(t, Config{Compression: c.compression})
		f.trainer(32)
		f.post(5, 32, `,"images":"`+strings.Repeat("x", 2000)+`"`)
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/batch", nil)
		r.RemoteAddr = c.from
		r.Header.Set("Accept-Encoding", c.accept)
		w := httptest.NewRecorder()
		f.h.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding"); got != c.want {
			t.Errorf("%+v: encoded as %q", c, got)
			continue
		}
		var out io.Reader = w.Body
		switch c.want {
		case "gzip":
			z, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			out = z
		case "zstd":
			z, err := zstd.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			defer z.Close()
			out = z
		}
		var batch map[string]any
		if err := json.NewDecoder(out).Decode(&batch); err != nil || fmt.Sprint(marksOf(batch)) != "[5]" {
			t.Errorf("%+v: read %v, %v", c, marksOf(batch), err)
		}
	}
}
