package ui

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/event/eventtest"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/transcript"
	"github.com/recipe-rl/recipe/internal/samples"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

func must(t eventtest.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const blockName = "trajectories.builtin.default"

// fixture is a run directory with a log and a record of samples, and a server of it.
type fixture struct {
	*Server
	t      testing.TB
	dir    state.Dir
	log    *event.Log
	record *samples.Writer
}

func newFixture(t testing.TB, opts Options) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: state.Dir(filepath.Join(t.TempDir(), ".recipe", "demo"))}
	must(t, f.dir.Make())
	must(t, os.WriteFile(filepath.Join(string(f.dir), "run.json"), fmt.Appendf(nil, `{"format_version":2,"id":"r",`+
		`"recipe":"demo","file":"demo.hcl","status":"running","engine":{},"policy":{"version":0},"blocks":{`+
		`"inference.tiny.policy":{"intent":"run","life":1,"outputs":{"tokenizer":%q}},`+
		`"environment.arithmetic.sums":{"intent":"run","life":1,"config":{"inference":{"ref":"inference.tiny.policy"},`+
		`"key":{"sensitive":"f1n9er"}}}}}`, string(f.dir)), 0o600))
	must(t, os.WriteFile(filepath.Join(string(f.dir), "tokenizer.json"), []byte(`{"added_tokens":[{"id":2,"content":"</s>"}],`+
		`"model":{"type":"BPE","vocab":{"1":3,"+":4,"=":5,"Ġ7":6}},"decoder":{"type":"ByteLevel"}}`), 0o600))
	var err error
	f.log, err = event.Open(f.dir.Events())
	must(t, err)
	f.record, err = samples.NewWriter(filepath.Join(string(f.dir), "samples", blockName), samples.Limits{Bytes: 1 << 30},
		func(err error) { t.Error(err) })
	must(t, err)
	opts.Runs = func() (map[string]state.Dir, error) { return map[string]state.Dir{"demo": f.dir}, nil }
	f.Server, err = New(opts)
	must(t, err)
	t.Cleanup(func() {
		f.Close()
		must(t, f.record.Close())
		must(t, f.log.Close())
	})
	return f
}

func (f *fixture) event(e event.Event) {
	f.t.Helper()
	_, err := f.log.Append(e)
	must(f.t, err)
}

// ask makes a request as a browser on this machine does.
func (f *fixture) ask(path string, headers ...string) *httptest.ResponseRecorder {
	f.t.Helper()
	r := httptest.NewRequestWithContext(f.t.Context(), http.MethodGet, path, nil)
	r.Host = "127.0.0.1:7"
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, r)
	return w
}

func (f *fixture) get(path string, into any) {
	f.t.Helper()
	w := f.ask("/api/runs/demo" + path)
	if w.Code != http.StatusOK {
		f.t.Fatalf("%s was answered with %d: %s", path, w.Code, w.Body)
	}
	must(f.t, json.Unmarshal(w.Body.Bytes(), into))
}

// written waits until the record has so many groups.
func (f *fixture) written(n int) {
	f.t.Helper()
	r, err := samples.NewReader(filepath.Join(string(f.dir), "samples", blockName))
	must(f.t, err)
	defer r.Close()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := r.Refresh()
		must(f.t, err)
		if list, _ := r.Groups(); len(list) >= n {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("the record does not have %d groups after 30 s", n)
		}
	}
}

func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	open := newFixture(t, Options{})
	guarded := newFixture(t, Options{Token: "s3cret", Hosts: []string{"box.example"}})
	for _, test := range []struct {
		name    string
		f       *fixture
		path    string
		headers []string
		want    int
	}{
		{"this machine", open, "/", nil, 200},
		{"by name", open, "/api/runs", []string{"Host", "localhost:80"}, 200},
		{"over IPv6", open, "/api/runs", []string{"Host", "[::1]:80"}, 200},
		{"by a name that resolves here", open, "/api/runs", []string{"Host", "evil.example"}, 421},
		{"by a name that begins like an address", open, "/api/runs", []string{"Host", "127.0.0.1.evil.example"}, 421},
		{"its own page", open, "/api/runs", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"another page", open, "/api/runs", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"}, 403},
		{"an image of another page", open, "/app.js", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode",
			"no-cors"}, 403},
		{"a frame of another page", open, "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate",
			"Sec-Fetch-Dest", "iframe"}, 403},
		{"a link", open, "/", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest",
			"document"}, 200},
		{"without a token", guarded, "/api/runs", nil, 401},
		{"with a wrong token", guarded, "/?token=x", nil, 401},
		{"with the token", guarded, "/?token=s3cret", nil, 303},
		{"with a wrong cookie", guarded, folder("s3cret") + "/api/runs", []string{"Cookie", "recipe_ui=s3cre"}, 401},
		{"with the cookie", guarded, folder("s3cret") + "/api/runs", []string{"Cookie", "recipe_ui=s3cret", "Host",
			"box.example"}, 200},
		{"the page with the cookie", guarded, folder("s3cret") + "/", []string{"Cookie", "recipe_ui=s3cret", "Host",
			"box.example"}, 200},
		{"in the folder without the cookie", guarded, folder("s3cret") + "/api/runs", nil, 401},
		{"a program with the token", guarded, "/api/runs", []string{"Authorization", "Bearer s3cret"}, 200},
	} {
		w := test.f.ask(test.path, test.headers...)
		if w.Code != test.want {
			t.Errorf("%s: %d, expected %d: %s", test.name, w.Code, test.want, w.Body)
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") ||
			strings.Contains(csp, "unsafe") {
			t.Errorf("%s: the policy is %q", test.name, csp)
		}
	}
	w := guarded.ask("/?token=s3cret")
	if c := w.Header().Get("Set-Cookie"); !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "SameSite=Lax") ||
		w.Header().Get("Location") != folder("s3cret")+"/" {
		t.Errorf("the cookie is %q, the way goes to %q", c, w.Header().Get("Location"))
	}
	for path, want := range map[string]string{"//evil.example/x": "/evil.example/x", "/": "/",
		folder("s3cret") + "//evil.example": "/evil.example", folder("s3cret") + "/x": "/x"} {
		w = guarded.ask("http://127.0.0.1" + path + "?token=s3cret")
		if to := w.Header().Get("Location"); to != folder("s3cret")+want {
			t.Errorf("%s: the way goes to %q, expected the folder and %q", path, to, want)
		}
	}
}

func TestARunIsShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.event(event.Event{Type: event.RunStarted, Message: "apply"})
	f.event(event.Event{Type: event.Operation, Address: "trainer.tiny.policy", Action: "create", Message: "it is new",
		Needs: []string{"environment.arithmetic.sums"}})
	f.event(event.Event{Type: event.Phase, Address: "inference.tiny.policy", Phase: "ready"})
	f.event(event.Event{Type: event.Phase, Address: "environment.arithmetic.sums", Phase: "ready"})
	for step := int64(1); step <= 3; step++ {
		f.event(event.Event{Type: event.Metrics, Address: "trainer.tiny.policy", Step: step,
			Metrics: map[string]float64{"reward": float64(step) / 4, "seconds_waiting": 1, "seconds_training": 2}})
	}
	f.event(event.Event{Type: event.LogLine, Address: "trainer.tiny.policy", Level: "warn",
		Message: "gradient \x1b[31mlarge"})
	f.event(event.Event{Type: event.Metrics, Address: "trainer.grpo.policy", Step: 1,
		Metrics: map[string]float64{"time/wait": 3, "time/step": 4}})
	f.event(event.Event{Type: event.Activity, Address: "inference.tiny.policy", State: event.Working,
		Message: "3 requests at its engine", Seconds: 2})
	f.event(event.Event{Type: event.Activity, Address: "inference.tiny.policy", State: event.Waiting, On: "sync.a.b",
		Message: "2 requests"})
	f.event(event.Event{Type: event.Machine, Metrics: map[string]float64{"cpu": 0.5}})
	f.event(event.Event{Type: event.Activity, Address: "trainer.tiny.policy", State: event.Working,
		Message: "training step 4", Seconds: 2})
	f.event(event.Event{Type: event.Machine, Address: "trainer.tiny.policy", Host: "n1",
		Metrics: map[string]float64{"gpu/3/utilization": 0.75}})
	var s summary
	f.get("", &s)
	if s.Status != "interrupted" || len(s.Blocks) != 4 || s.Recipe != "demo" || s.Seq == 0 {
		t.Errorf("the summary is %+v", s)
	}
	if i := slices.IndexFunc(s.Blocks, func(b block) bool { return b.Kind == "environment" }); i < 0 ||
		!slices.Equal(s.Blocks[i].Needs, []string{"inference.tiny.policy"}) {
		t.Errorf("the blocks are %+v", s.Blocks)
	}
	if i := slices.IndexFunc(s.Blocks, func(b block) bool { return b.Address == "trainer.tiny.policy" }); i < 0 ||
		!slices.Equal(s.Blocks[i].Needs, []string{"environment.arithmetic.sums"}) {
		t.Errorf("a block that has not been started is not as it was planned: %+v", s.Blocks)
	}
	var curves map[string]struct{ X, Y []float64 }
	f.get("/series?name=trainer.tiny.policy+reward&name=none", &curves)
	if c := curves["trainer.tiny.policy reward"]; len(curves) != 1 || !slices.Equal(c.X, []float64{1, 2, 3}) ||
		!slices.Equal(c.Y, []float64{0.25, 0.5, 0.75}) {
		t.Errorf("the curves are %+v", curves)
	}
	var lanes struct {
		Lanes []lane
	}
	f.get("/timeline?points=10000", &lanes)
	i := slices.IndexFunc(lanes.Lanes, func(l lane) bool { return l.Name == "trainer.tiny.policy steps" })
	if i < 0 || len(lanes.Lanes[i].Spans) == 0 {
		t.Errorf("the timeline is %+v", lanes)
	}
	parts := steps(event.Event{Step: 7, Metrics: map[string]float64{"time/wait": 3, "time/step": 4}}, 100)
	want := []span{{93, 96, "wait", "waits for a batch, step 7"}, {96, 100, "work", "trains, step 7"}}
	if !slices.Equal(parts, want) {
		t.Errorf("the parts of a step of a worker are %+v, expected %+v", parts, want)
	}
	f.get("/timeline?points=10000", &lanes)
	i = slices.IndexFunc(lanes.Lanes, func(l lane) bool { return l.Name == "inference.tiny.policy activity" })
	if i < 0 || len(lanes.Lanes[i].Spans) != 2 || lanes.Lanes[i].Spans[0].What != "work" ||
		lanes.Lanes[i].Spans[1].Label != "waits for sync b: 2 requests" {
		t.Errorf("the activities are %+v", lanes)
	}
	f.get("/series?name=machine+cpu&x=time", &curves)
	if c := curves["machine cpu"]; !slices.Equal(c.Y, []float64{0.5}) {
		t.Errorf("the machine is %+v", curves)
	}
	f.get("/timeline?points=10000", &lanes)
	i = slices.IndexFunc(lanes.Lanes, func(l lane) bool { return l.Name == "GPU 3 of n1" })
	if i < 0 || lanes.Lanes[i].Block != "trainer.tiny.policy" || len(lanes.Lanes[i].Spans) != 1 ||
		lanes.Lanes[i].Spans[0].Label != "trainer.tiny.policy: training step 4" {
		t.Errorf("the lanes of another machine's GPU are %+v", lanes)
	}
	f.get("/series?name=machine+n1+trainer.tiny.policy+gpu/3/utilization&x=time", &curves)
	if c := curves["machine n1 trainer.tiny.policy gpu/3/utilization"]; !slices.Equal(c.Y, []float64{0.75}) {
		t.Errorf("the GPU of another machine is %+v", curves)
	}
	if b := s.Blocks[slices.IndexFunc(s.Blocks, func(b block) bool { return b.Kind == "inference" })]; b.Doing !=
		"waits for sync b: 2 requests" {
		t.Errorf("the block that samples does %q", b.Doing)
	}
	var lines []logLine
	f.get("/logs?level=warn&grep=LARGE&address=trainer.tiny.policy", &lines)
	if len(lines) != 1 || lines[0].Text != "gradient ␛[31mlarge" {
		t.Errorf("the log is %+v", lines)
	}
	w := f.ask("/api/runs/demo/config")
	if text := w.Body.String(); !strings.Contains(text, `"action":"create"`) || !strings.Contains(text, "f1n9er") {
		t.Errorf("the configuration is %s", text)
	}
	if w := f.ask("/api/runs/demo/series?from=x"); w.Code != http.StatusBadRequest {
		t.Errorf("a malformed number is answered with %d", w.Code)
	}
}

//docs:survival.md samples can hardly be looked at
func TestSamplesAreShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	group := func(id uint64, scores string, more string) {
		f.record.Post(samples.Line{ID: id, Environment: "sums", Sequences: 2, Tokens: 10, Versions: []int64{2, 2}},
			[]byte(`{"tokens":[[3,4,3,5,6,2],[3,4,3,5,6]],"masks":[[-100,-100,-100,-100,6,2],[-100,-100,-100,-100,6]],"scores":`+
				scores+`,"inference_logprobs":[[1,1,1,1,-0.5,-1],[1,1,1,1,-2]],"policy_version":2`+more+`}`))
	}
	group(1, "[1,0]", "")
	version := int64(3)
	f.record.Train(samples.Line{ID: 1, Step: 4, Version: &version}, samples.Computed{
		Logprobs: trajectory.Floats([]float64{-0.75, -1, -2}), Advantages: trajectory.Floats([]float64{1, 1, -1})})
	group(2, "[1,1]", `,"messages":[[{"role":"user","content":"needle"},{"role":"assistant","content":"a"}],`+
		`[{"role":"user","content":"needle"},{"role":"assistant","content":[{"type":"text","text":"b"}]}]]`)
	f.written(2)
	var list struct {
		Groups []groupRow
		Total  int
		Next   int
	}
	for query, want := range map[string][]uint64{
		"": {2, 1}, "?state=degenerate": {2}, "?state=mixed": {1}, "?text=NEEDLE": {2}, "?text=1%2b1": {1},
		"?least=0.6": {2}, "?first_step=4&last_step=4": {1}, "?first_version=3": {}, "?environment=other": {},
		"?state=waiting": {2}, "?after=1": {1},
	} {
		f.get("/samples"+query, &list)
		got := []uint64{}
		for _, g := range list.Groups {
			got = append(got, g.ID)
		}
		if !slices.Equal(got, want) || list.Total != 2 {
			t.Errorf("samples%s are %v of %d, expected %v", query, got, list.Total, want)
		}
	}
	f.get("/samples/"+blockName+"/1/same", &list)
	if len(list.Groups) != 1 || list.Groups[0].ID != 2 {
		t.Errorf("groups of the same prompt are %+v", list.Groups)
	}
	if f.get("/samples?limit=1", &list); list.Next != 1 {
		t.Errorf("after one of two samples it goes on at %d", list.Next)
	}
	var g struct {
		groupRow
		Messages    []transcript.Message
		Completions []struct {
			Score, Advantage, Mismatch float64
			Trained                    int
			Messages                   []transcript.Message
		}
	}
	f.get("/samples/"+blockName+"/1", &g)
	if c := g.Completions; len(c) != 2 || c[0].Advantage != 1 || c[1].Advantage != -1 || c[0].Mismatch != 0.125 ||
		c[0].Trained != 2 || len(c[0].Messages) != 1 ||
		c[0].Messages[0] != (transcript.Message{Role: "completion", Text: " 7</s>"}) ||
		g.Step != 4 || *g.Staleness != 1 {
		t.Errorf("group 1 is %+v", g)
	}
	f.get("/samples/"+blockName+"/2", &g)
	if len(g.Messages) != 1 || g.Messages[0].Text != "needle" || g.Completions[1].Messages[0].Text != "b" {
		t.Errorf("group 2 is %+v", g)
	}
	var seq struct {
		Tokens []struct {
			Text                        string
			Trained                     bool
			Sampler, Trainer, Advantage *float64
			Version                     *int64
		}
		Total, First int
	}
	f.get("/samples/"+blockName+"/1/0?offset=4", &seq)
	if seq.Total != 6 || seq.First != 4 || len(seq.Tokens) != 2 || seq.Tokens[0].Text != " 7" || !seq.Tokens[0].Trained ||
		*seq.Tokens[0].Sampler != -0.5 || *seq.Tokens[0].Trainer != -0.75 || *seq.Tokens[0].Version != 2 {
		t.Errorf("the tokens are %+v", seq)
	}
	if w := f.ask("/api/runs/demo/samples/" + blockName + "/1/2"); w.Code != http.StatusNotFound {
		t.Errorf("a completion that is not there is answered with %d", w.Code)
	}
}

// What models write must reach the page as harmless text of bounded length.
func TestHostileSamples(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	hostile := "<script>alert(1)</script>\x1b[2J\u202eevil\u2066\x00\u200b" + strings.Repeat("A", 10<<20)
	text, err := json.Marshal(hostile)
	must(t, err)
	f.record.Post(samples.Line{ID: 1, Environment: "<img src=x>\u202e"}, []byte(`{"tokens":[[3,4]],"masks":[[-100,4]],`+
		`"scores":[1],"messages":[[{"role":"user","content":`+string(text)+`},{"role":"x\u001b","content":"y"}]]}`))
	f.record.Post(samples.Line{ID: 2}, []byte(`{"tokens":[[1,2]],"masks":[[1]],"scores":[1]}`))
	f.record.Post(samples.Line{ID: 3}, []byte(`not json`))
	f.event(event.Event{Type: event.LogLine, Address: "a", Message: hostile})
	f.written(3)
	for _, path := range []string{"/samples", "/samples/" + blockName + "/1", "/samples/" + blockName + "/1/0", "/logs",
		""} {
		w := f.ask("/api/runs/demo" + path)
		body := w.Body.String()
		if w.Code != http.StatusOK || len(body) > 1<<19 {
			t.Errorf("%s is answered with %d and %d bytes", path, w.Code, len(body))
		}
		if !strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s could be taken for a page: %v", path, w.Header())
		}
		for _, bad := range []string{"<script", "<img", "\x1b", `\u001b`, "\u202e", `\u202e`, "\u2066", "\u200b", `\u0000`} {
			if strings.Contains(body, bad) {
				t.Errorf("%s contains %q", path, bad)
			}
		}
	}
	for _, id := range []string{"2", "3"} {
		if w := f.ask("/api/runs/demo/samples/" + blockName + "/" + id); w.Code != http.StatusInternalServerError ||
			!strings.Contains(w.Body.String(), "reading group") {
			t.Errorf("damaged group %s is answered with %d %s", id, w.Code, w.Body)
		}
	}
}

func TestTheStreamTellsOfChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.event(event.Event{Type: event.RunStarted})
	server := httptest.NewServer(f.Handler())
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/runs/demo/stream", nil)
	must(t, err)
	reply, err := http.DefaultClient.Do(r)
	must(t, err)
	defer func() { _ = reply.Body.Close() }()
	lines := bufio.NewReader(reply.Body)
	next := func() string {
		for {
			line, err := lines.ReadString('\n')
			must(t, err)
			if line = strings.TrimSpace(line); line != "" {
				return line
			}
		}
	}
	if got := next(); got != "data: 1" {
		t.Fatalf("the first line is %q", got)
	}
	f.event(event.Event{Type: event.Progress, Address: "trainer.tiny.policy", Step: 1})
	if got := next(); got != "data: 2" {
		t.Errorf("after an event the line is %q", got)
	}
	f.stop()
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Errorf("the stream ends with %v when the server does", err)
	}
}

// Clients that open streams and read nothing do not keep others out.
func TestTheOldestStreamEndsFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.event(event.Event{Type: event.RunStarted})
	server := httptest.NewServer(f.Handler())
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var first, last io.ReadCloser
	for i := range mostStreams + 1 {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/runs/demo/stream", nil)
		must(t, err)
		reply, err := http.DefaultClient.Do(r)
		must(t, err)
		defer func() { _ = reply.Body.Close() }()
		if last = reply.Body; i == 0 {
			first = last
		}
	}
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Errorf("the oldest stream was not ended: %v", err)
	}
	if line, err := bufio.NewReader(last).ReadString('\n'); err != nil || line != "data: 1\n" {
		t.Errorf("the newest stream has %q, %v", line, err)
	}
	f.stop()
}

func TestViewKeepsSpikes(t *testing.T) {
	t.Parallel()
	s, n := &series{}, 1_000_000
	for i := range n {
		v := 0.0
		if i == 654_321 {
			v = 9
		}
		s.add(float64(i), float64(i)/10, v)
	}
	p := s.view(false, math.Inf(-1), math.Inf(1), 0, 800)
	if len(p.X) > 800 || p.N != n || !slices.ContainsFunc(p.Y, func(y *number) bool { return *y == 9 }) {
		t.Errorf("%d points of %d, without the spike", len(p.X), p.N)
	}
	if !slices.IsSorted(p.X) {
		t.Error("the points are not in order")
	}
	p = s.view(true, 65_432, 65_433, 0, 800)
	if p.N < 10 || p.N > 13 || !slices.ContainsFunc(p.Y, func(y *number) bool { return *y == 9 }) {
		t.Errorf("a part has %d points", p.N)
	}
	if p = s.view(false, 0, 1e9, 0.9, 800); *p.Last != number(s.values[n-1]) || *p.Y[len(p.Y)-1] == *p.Last {
		t.Errorf("the newest value is %v, smoothed %v; reported was %v", *p.Last, *p.Y[len(p.Y)-1], s.values[n-1])
	}
	s.add(500, 1e6, 7) // resumed from a checkpoint
	if len(s.values) != 501 || s.values[500] != 7 {
		t.Errorf("after going back to step 500 there are %d values", len(s.values))
	}
	if y := smoothed([]float64{4, 4, math.NaN(), 4}, 0.9); math.Abs(y[3]-4) > 1e-9 || !math.IsNaN(y[2]) {
		t.Errorf("a constant is smoothed to %v", y)
	}
}

func TestWaitedFor(t *testing.T) {
	t.Parallel()
	for on, want := range map[string]string{
		"trainer.*.*": "any trainer", "environment.*.sums": "environment sums", "the disk": "the disk",
		"inference.vllm.policy[0]": "inference policy[0]", "module.a.trainer": "module trainer",
	} {
		if got := waitedFor(on); got != want {
			t.Errorf("%s is called %q, want %q", on, got, want)
		}
	}
}

// The lanes of a long run are small, and merged spans keep what took the longest.
func TestVisibleMergesShortSpans(t *testing.T) {
	t.Parallel()
	var list []span
	for i := range 10_000 {
		at := float64(i)
		list = append(list, span{at, at + 0.7, "work", "trains"}, span{at + 0.7, at + 1, "wait", "waits"})
	}
	out := visible(list, 0, 10_000, 10_000, 10)
	if len(out) > 1100 || out[500].What != "work" {
		t.Errorf("%d spans, one is %+v", len(out), out[500])
	}
	if all := visible(list, 10, 12, 10_000, 0); len(all) > 7 || all[1].Label != "trains" {
		t.Errorf("two seconds have %+v", all)
	}
}

// The page is built from the sources beside it: whoever changes those runs make ui.
//
//docs:ui.md Changing the page
func TestThePageIsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(filepath.Join("built", "sources.sha256"))
	must(t, err)
	sources, err := filepath.Glob(filepath.Join("page", "src", "*"))
	must(t, err)
	slices.Sort(sources)
	h := sha256.New()
	for _, path := range append([]string{"page/build.mjs", "page/package.json", "page/package-lock.json"}, sources...) {
		text, err := os.ReadFile(path)
		must(t, err)
		fmt.Fprintf(h, "%s\n%s\n", strings.TrimPrefix(filepath.ToSlash(path), "page/"), text)
	}
	if got := fmt.Sprintf("%x\n", h.Sum(nil)); got != string(want) {
		t.Errorf("engine/ui/built was made from other sources than engine/ui/page: run make ui")
	}
}

// BenchmarkMillionPoints is one request of a chart over a series of 1,000,000 values.
func BenchmarkMillionPoints(b *testing.B) {
	s := &series{}
	for i := range 1_000_000 {
		s.add(float64(i), float64(i), math.Sin(float64(i)/1000))
	}
	for b.Loop() {
		p := s.view(false, math.Inf(-1), math.Inf(1), 0.6, 1600)
		_, _ = json.Marshal(p)
	}
}

// Two blocks share GPU 0, by turns, and GPU 1 belongs to the trainer.
func TestALaneForEachGPU(t *testing.T) {
	t.Parallel()
	served, trained := addr.Block{Kind: kind.Inference, Plugin: "vllm", Name: "p"}, addr.Block{Kind: kind.Trainer,
		Plugin: "grpo", Name: "p"}
	lanes := timeline{Doing: map[string][]span{
		served.String(): {{10, 20, event.Working, "8 requests"}, {20, 30, event.Resting, "idle"},
			{30, 0, event.Working, "1"}},
		trained.String(): {{18, 28, event.Working, "step 1"}},
	}}
	rec := &state.Run{Blocks: map[addr.Block]*state.Block{served: {Devices: []string{"0"}},
		trained: {Devices: []string{"0", "1"}}}}
	want := []lane{
		{Name: "GPU 0", Spans: []span{{10, 20, "inference", "inference.vllm.p: 8 requests"},
			{20, 28, "trainer", "trainer.grpo.p: step 1"}, {30, 40, "inference", "inference.vllm.p: 1"}}},
		{Name: "GPU 1", Spans: []span{{18, 28, "trainer", "trainer.grpo.p: step 1"}}},
	}
	if got := lanes.gpus(rec, 40); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
