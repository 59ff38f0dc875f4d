package trajectory

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/internal/bounded"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"))
}

// script answers requests in order and records them.
type script struct {
	mu       sync.Mutex
	replies  []func(http.ResponseWriter)
	requests []string
	bodies   []string
	keys     []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			panic(err)
		}
		body = z
	}
	text, _ := io.ReadAll(body)
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
	s.bodies = append(s.bodies, string(text))
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	reply := s.replies[0]
	if len(s.replies) > 1 {
		s.replies = s.replies[1:]
	}
	s.mu.Unlock()
	reply(w)
}

func says(code int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func start(t *testing.T, replies ...func(http.ResponseWriter)) (*Client, *script, *[]time.Duration, *httptest.Server) {
	t.Helper()
	s := &script{replies: replies}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	var waits []time.Duration
	c, err := New(server.URL, WithHTTPClient(server.Client()),
		WithWait(func(ctx context.Context, d time.Duration, _ string) error {
			waits = append(waits, d)
			return ctx.Err()
		}))
	if err != nil {
		t.Fatal(err)
	}
	return c, s, &waits, server
}

func TestBatchPollsWithGrowingPauses(t *testing.T) {
	t.Parallel()
	c, s, waits, _ := start(t, says(200, `{"batch":null}`))
	batch, err := c.Batch(t.Context(), 0)
	if batch != nil || err != nil {
		t.Fatalf("got %v, %v; expected no batch and no error", batch, err)
	}
	if len(s.requests) != 8 {
		t.Errorf("asked %d times, expected 8", len(s.requests))
	}
	want := []time.Duration{300, 450, 675, 1012, 1518, 2278, 3417}
	for i, d := range *waits {
		if d.Truncate(time.Millisecond) != want[i]*time.Millisecond {
			t.Errorf("pause %d is %s, expected %d ms", i, d, want[i])
		}
	}
	if got := DefaultBatchRetry().delay(20); got != 12*time.Second {
		t.Errorf("the longest pause is %s, expected 12s", got)
	}
}

func TestBatchSurvivesServerErrorsAndReadsLeases(t *testing.T) {
	t.Parallel()
	c, s, _, _ := start(t, says(503, "full"), says(200, `{"batch":null}`),
		says(200, `{"batch":[{"tokens":[[1,2]],"masks":[[-100,2]],"scores":[0.5],"env_id":3,"policy_version":[4,6],"advantages":null}],"id":"a-1-1","lease_seconds":90}`))
	batch, err := c.Batch(t.Context(), 90*time.Second)
	if err != nil || batch == nil {
		t.Fatal(batch, err)
	}
	if batch.ID != "a-1-1" || batch.LeaseSeconds != 90 || *batch.Groups[0].EnvID != 3 ||
		*batch.Groups[0].PolicyVersion != (Versions{4, 6}) {
		t.Errorf("read %+v", batch)
	}
	if !strings.Contains(s.requests[0], "lease=90") {
		t.Errorf("asked with %s, expected a lease of 90 seconds", s.requests[0])
	}
	if err := c.Ack(t.Context(), batch.ID); err != nil {
		t.Errorf("ack: %v", err)
	}
}

//docs:troubleshooting.md /batch answers an error with 200
func TestErrorsAreTyped(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		reply  func(http.ResponseWriter)
		call   func(context.Context, *Client) error
		reason Reason
		tries  int
	}{
		{"an unregistered trainer is an error although the status is 200",
			says(200, `{"status":"error","message":"Trainer not registered.","batch":[]}`),
			func(ctx context.Context, c *Client) error { _, err := c.Batch(ctx, 0); return err }, Unregistered, 1},
		{"a refused group is not posted again", says(422, `{"detail":[]}`),
			func(ctx context.Context, c *Client) error { _, err := c.Post(ctx, &Group{}); return err }, ClientError, 1},
		{"a server error is tried three times", says(500, "no"),
			func(ctx context.Context, c *Client) error { _, err := c.Post(ctx, &Group{}); return err }, ServerError, 3},
		{"a lost lease says so", says(409, `{"detail":"lost"}`),
			func(ctx context.Context, c *Client) error { return c.Ack(ctx, "x-1-1") }, LeaseLost, 1},
		{"another program's page is no reply", says(200, "<html>"),
			func(ctx context.Context, c *Client) error { _, err := c.Status(ctx); return err }, BadReply, 1},
		{"a registration without a uuid is no registration", says(200, "{}"),
			func(ctx context.Context, c *Client) error { _, err := c.Register(ctx, Registration{}); return err }, BadReply, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, s, _, _ := start(t, test.reply)
			err := test.call(t.Context(), c)
			var failure *Error
			if !errors.Is(err, test.reason) || !errors.As(err, &failure) {
				t.Fatalf("got %v, expected %s", err, test.reason)
			}
			if len(s.requests) != test.tries {
				t.Errorf("called %d times, expected %d", len(s.requests), test.tries)
			}
			for _, line := range []string{"\n2. ", "\n3. "} {
				if !strings.Contains(failure.Guidance(), line) {
					t.Errorf("the guidance lacks %q: %s", line, failure.Guidance())
				}
			}
		})
	}
}

// The body of a refusal repeats what was posted, so its beginning is not what a person needs.
func TestARefusalIsQuotedWhole(t *testing.T) {
	t.Parallel()
	msg := "entry 2 has 1 at position 7. Expected -100, or the token's own id 1234. Masks of 0 and 1 are not read."
	c, _, _, _ := start(t, says(422, `{"detail":[{"type":"value_error","input":[`+strings.Repeat("1234,", 500)+
		`1],"loc":["body","masks"],"msg":"`+msg+`"}]}`))
	_, err := c.Post(t.Context(), &Group{})
	if err == nil || !strings.Contains(err.Error(), "body.masks: "+msg) || strings.Contains(err.Error(), "1234,1234") {
		t.Errorf("got %v, want %q", err, msg)
	}
}

// Gzip inflates in net/http.
func TestAnAnswerWithoutEndIsRefused(t *testing.T) {
	t.Parallel()
	for _, packed := range []bool{false, true} {
		c, s, _, _ := start(t, func(w http.ResponseWriter) {
			out := io.Writer(w)
			if packed {
				w.Header().Set("Content-Encoding", "gzip")
				out = gzip.NewWriter(w)
			}
			for err := error(nil); err == nil; _, err = io.WriteString(out, strings.Repeat(" ", 1<<16)) {
			}
		})
		c.most = 1 << 20
		_, err := c.Batch(t.Context(), 0)
		var e *Error
		if !errors.As(err, &e) || e.Reason != BadReply || !errors.Is(err, bounded.ErrTooLarge) {
			t.Errorf("gzip %t: %v, expected that the answer is too large", packed, err)
		}
		if len(s.requests) != 1 {
			t.Errorf("gzip %t: asked %d times, expected once", packed, len(s.requests))
		}
	}
}

func TestConnectionFailuresAreToldApart(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(release) })
	for reason, url := range map[Reason]string{
		Refused: "http://" + address + "/t/secret", Timeout: slow.URL, Unreachable: "http://no-such-host.invalid",
	} {
		transport, timeout := &http.Transport{}, time.Minute
		if reason == Timeout { // the others end by themselves
			timeout = 500 * time.Millisecond
		}
		c, err := New(url, WithTimeout(timeout), WithHTTPClient(&http.Client{Transport: transport}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Check(t.Context())
		transport.CloseIdleConnections()
		// a resolver may be slow to say no
		if !errors.Is(err, reason) && (reason != Unreachable || !errors.Is(err, Timeout)) {
			t.Errorf("%s: got %v, expected %s", url, err, reason)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error tells the token: %v", err)
		}
	}
}

//docs:survival.md "server is not up yet"; misspelled settings are ignored
func TestRegistrationsAreRepeatedAndEnvironmentsWait(t *testing.T) {
	t.Parallel()
	c, s, waits, _ := start(t, says(502, ""), says(200, `{"uuid": 340282366920938463463374607431768211455}`))
	uuid, err := c.Register(t.Context(), Registration{BatchSize: 8})
	if err != nil || uuid != "340282366920938463463374607431768211455" {
		t.Errorf("got uuid %s, %v", uuid, err)
	}
	if !reflect.DeepEqual(*waits, []time.Duration{4 * time.Second}) || !strings.Contains(s.bodies[1], `"batch_size":8`) {
		t.Errorf("waited %v, sent %v", *waits, s.bodies)
	}
	answers := slices.Repeat([]func(http.ResponseWriter){says(200, `{"status":"wait for trainer to start"}`)}, 8)
	c, _, waits, _ = start(t, append(answers, says(200, `{"status":"success","env_id":0,"wandb_name":"a_0"}`))...)
	w, err := c.RegisterEnv(t.Context(), EnvRegistration{DesiredName: "a", GroupSize: 4})
	if err != nil || w.WandbName != "a_0" || len(*waits) != 8 || (*waits)[0] > 50*time.Millisecond ||
		(*waits)[6] != time.Second || (*waits)[7] != time.Second {
		t.Errorf("got %+v, %v after %v; want waits that grow to a second", w, err, *waits)
	}
}

func TestPostCompressesAndAuthenticates(t *testing.T) {
	t.Parallel()
	_, s, _, server := start(t, says(200, `{"status":"buffered","buffer_size":3}`))
	c, err := New(server.URL, WithGzip(10), WithToken("secret"), WithHTTPClient(server.Client()))
	if err != nil {
		t.Fatal(err)
	}
	env := 2
	r, err := c.Post(t.Context(), &Group{Tokens: [][]int{{1, 2}}, Masks: [][]int{{-100, 2}}, Scores: []float64{1},
		EnvID: &env, PolicyVersion: At(7)})
	if err != nil || r.Status != "buffered" || r.BufferSize != 3 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if want := `{"tokens":[[1,2]],"masks":[[-100,2]],"scores":[1],"env_id":2,"policy_version":7}`; s.bodies[0] != want {
		t.Errorf("sent %s, expected %s", s.bodies[0], want)
	}
	if !strings.HasSuffix(s.requests[0], "Bearer secret") {
		t.Errorf("sent %s, expected a bearer token", s.requests[0])
	}
}

// A repeated post has the same key; another post of the same group has another.
func TestARepeatedPostKeepsItsKey(t *testing.T) {
	t.Parallel()
	c, s, _, _ := start(t, says(500, ""), says(503, ""), says(200, `{"status":"received"}`))
	g := &Group{Tokens: [][]int{{1}}, Masks: [][]int{{1}}, Scores: []float64{1}}
	for range 2 {
		if _, err := c.Post(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.PostList(t.Context(), []*Group{g}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetPolicyVersion(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	k := s.keys
	if len(k) != 6 || len(k[0]) < 20 || k[1] != k[0] || k[2] != k[0] || k[3] == k[0] || k[3] == "" || k[4] == k[3] ||
		k[4] == "" || k[5] != "" {
		t.Errorf("the keys of three attempts, of another post, of a list and of another call are %q", k)
	}
}

func TestNewRefusesWhatIsNoURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "localhost:8000", "ftp://host", "http://"} {
		if _, err := New(url); err == nil {
			t.Errorf("accepted %q", url)
		}
	}
	if _, err := New("http://host", WithTimeout(0)); err == nil {
		t.Error("accepted a timeout of 0")
	}
}

func TestVersionsReadBothForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Versions{"3": {3, 3}, "[2,5]": {2, 5}, "[4]": {4, 4}} {
		var v Versions
		if err := json.Unmarshal([]byte(text), &v); err != nil || v != want {
			t.Errorf("%s is read as %v, %v; expected %v", text, v, err, want)
		}
	}
	for _, text := range []string{`"3"`, "[]", "[1,2,3]", "{}"} {
		if err := json.Unmarshal([]byte(text), &Versions{}); err == nil {
			t.Errorf("accepted %s", text)
		}
	}
}

// Missing scores were read as 0, and trained on.
func TestANullIsNoNumber(t *testing.T) {
	t.Parallel()
	const good = `{"tokens":[[1],[2]],"masks":[[1],[2]],"scores":[1,0],"advantages":[null,[0.5]],"env_id":7,"policy_version":3}`
	group := func(field, value string) string {
		return `{"tokens":[[1],[2]],"masks":[[1],[2]],` + map[bool]string{false: `"scores":[1,0],`}[field == "scores"] + `"` +
			field + `":` + value + `}`
	}
	for name, bad := range map[string]string{
		"score": group("scores", "[1,null]"), "advantage": group("advantages", "[[1],[null]]"),
		"log-probability": group("inference_logprobs", "[[-1],[ null ]]"),
		"reference":       group("ref_logprobs", "[[null],null]"),
	} {
		var reply batchReply
		if err := reply.decode([]byte(`{"batch":[` + bad + `,` + good + `],"id":"b"}`)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(reply.Unreadable) != 1 || !strings.Contains(reply.Unreadable[0].Err.Error(), "reading group 0 of the batch: "+
			"want a number for each score") {
			t.Errorf("%s: unreadable %v", name, reply.Unreadable)
		}
		if len(reply.Groups) != 1 {
			t.Fatalf("%s: %d groups were read, want the good one", name, len(reply.Groups))
		}
		g := reply.Groups[0]
		if g.Scores[0] != 1 || g.Advantages[0] != nil || g.Advantages[1][0] != 0.5 || *g.EnvID != 7 ||
			g.PolicyVersion.Min != 3 || g.InferenceLogprobs != nil {
			t.Errorf("%s: the good group became %+v", name, g)
		}
	}
}
