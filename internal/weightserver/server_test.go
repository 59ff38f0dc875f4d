package weightserver

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// testSnapshot publishes nothing and gives log-probabilities of 0.
type testSnapshot struct{}

func (testSnapshot) Publish(_ context.Context, r PublishRequest) (sdk.Weights, error) {
	return sdk.Weights{Version: r.Version}, nil
}

func (testSnapshot) Logprobs(_ context.Context, tokens []int) ([]float64, error) {
	return make([]float64, len(tokens)-1), nil
}

// testServer is a server whose trainer is the test.
func testServer(change func(*Config)) *Server {
	c := Config{
		Address: "trainer.t.a", SyncedBy: []string{"sync.s.a"}, attachDeadline: 5 * time.Second,
		silence: 5 * time.Second,
		Reached: func(int64) {},
	}
	if change != nil {
		change(&c)
	}
	return New(c)
}

// settle answers the next publication from another goroutine, as a sync block does.
func settle(t *testing.T, s *Server, outcome string) <-chan Publication {
	t.Helper()
	taken := make(chan Publication, 1)
	go func() {
		p := s.next(context.Background(), 0, 10*time.Second)
		if p == nil {
			close(taken)
			return
		}
		taken <- *p
		if err := s.done(Done{Version: p.Version, Error: outcome}); err != nil {
			t.Error(err)
		}
	}()
	return taken
}

func attach(t *testing.T, s *Server, every int64) {
	t.Helper()
	if err := s.attach(Attach{Address: "sync.s.a", Every: every, Transport: "reload"}); err != nil {
		t.Fatal(err)
	}
}

func TestTheServerLetsATrainerWithoutSyncPass(t *testing.T) {
	t.Parallel()
	s := testServer(func(c *Config) { c.SyncedBy, c.Version = nil, 4 })
	if v, err := s.Sync(t.Context(), 1, testSnapshot{}); v != 4 || err != nil {
		t.Errorf("version %d, %v", v, err)
	}
	if v := s.VersionOf(1); v != 4 { // inference would wait for a version that nobody brings
		t.Errorf("a checkpoint of step 1 has version %d", v)
	}
}

func TestTheServerPublishesOnItsPeriod(t *testing.T) {
	t.Parallel()
	s := testServer(nil)
	attach(t, s, 2)
	for step, want := range []int64{0, 0, 1, 1, 2} {
		var taken <-chan Publication
		if step == 2 || step == 4 {
			taken = settle(t, s, "")
		}
		v, err := s.Sync(t.Context(), int64(step), testSnapshot{})
		if v != want || err != nil {
			t.Errorf("step %d: version %d, %v; want %d", step, v, err, want)
		}
		if taken != nil {
			if p := <-taken; p.Step != int64(step) || p.Version != want {
				t.Errorf("step %d: publication %+v", step, p)
			}
		}
	}
}

func TestAResumedTrainerPublishesFirst(t *testing.T) {
	t.Parallel()
	s := testServer(func(c *Config) { c.Version, c.Resumed = 3, true })
	// Inference is ahead of the engine's record.
	if err := s.attach(Attach{Address: "sync.s.a", Every: 100, Version: 7}); err != nil {
		t.Fatal(err)
	}
	taken := settle(t, s, "")
	if v, err := s.Sync(t.Context(), 33, testSnapshot{}); v != 8 || err != nil {
		t.Errorf("version %d, %v; want 8", v, err)
	}
	if p := <-taken; p.Version != 8 || p.Step != 33 {
		t.Errorf("publication %+v", p)
	}
}

//docs:survival.md a weight update hangs silently
func TestTheServerNamesASyncBlockThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := testServer(func(c *Config) { c.attachDeadline = 20 * time.Millisecond })
	if _, err := s.Sync(t.Context(), 1, testSnapshot{}); err == nil ||
		!strings.Contains(err.Error(), "sync.s.a has not attached to trainer.t.a") {
		t.Errorf("never attached: %v", err)
	}
	s = testServer(func(c *Config) { c.silence = 50 * time.Millisecond })
	attach(t, s, 1)
	if _, err := s.Sync(t.Context(), 1, testSnapshot{}); err == nil ||
		!strings.Contains(err.Error(), "sync.s.a has been silent") {
		t.Errorf("silent: %v", err)
	}
	if s.state().Pending != nil {
		t.Error("the publication is still offered")
	}
}

func TestTheServerFailsWithTheReasonOfTheSyncBlock(t *testing.T) {
	t.Parallel()
	s := testServer(nil)
	attach(t, s, 1)
	settle(t, s, "the server has other weights")
	var e *sdk.Error
	v, err := s.Sync(t.Context(), 1, testSnapshot{})
	if v != 0 || !errors.As(err, &e) || e.Detail != "the server has other weights" ||
		!strings.Contains(e.Summary, "sync.s.a") {
		t.Errorf("version %d, %v", v, err)
	}
}

func TestTheServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := testServer(nil)
	attach(t, s, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Sync(ctx, 1, testSnapshot{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := s.call(1, func(Snapshot) error { return nil }); err == nil {
		t.Error("weights can be read although the trainer has gone on")
	}
}

func TestTheServerRefusesWhatItShould(t *testing.T) {
	t.Parallel()
	s := testServer(nil)
	for name, a := range map[string]Attach{
		"no address": {Every: 1}, "no period": {Address: "sync.s.a"}, "undeclared": {Address: "sync.other.b", Every: 1},
	} {
		if s.attach(a) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	attach(t, s, 1)
	attach(t, s, 2) // the same block again, after a restart
	free := testServer(func(c *Config) { c.SyncedBy = nil })
	attach(t, free, 1)
	if free.attach(Attach{Address: "sync.s.b", Every: 1}) == nil {
		t.Error("a second sync block was accepted")
	}
	if s.done(Done{Version: 5}) == nil {
		t.Error("a version that was never offered was acknowledged")
	}
	if s.call(1, func(Snapshot) error { return nil }) == nil {
		t.Error("weights can be read although nothing waits")
	}
}

func TestTheServerOverHTTPDemandsItsToken(t *testing.T) {
	t.Parallel()
	handler := testServer(nil).Handler("secret")
	for _, c := range []struct {
		method, path, token, body string
		want                      int
	}{
		{"GET", "/recipe/v1/state", "secret", "", 200},
		{"GET", "/recipe/v1/state", "", "", 401},
		{"GET", "/recipe/v1/state", "wrong", "", 401},
		{"POST", "/recipe/v1/attach", "secret", `{"address":"sync.s.a","every":1}`, 200},
		{"POST", "/recipe/v1/attach", "secret", `{"address":`, 400},
		{"POST", "/recipe/v1/publish", "secret", `{"version":1}`, 409},
		{"POST", "/recipe/v1/logprobs", "secret", `{"token_ids":[1,2]}`, 409},
		{"POST", "/recipe/v1/synced", "secret", `{"version":1}`, 409},
		{"GET", "/recipe/v1/pending?after=0&wait=1ms", "secret", "", 204},
		{"GET", "/recipe/v1/pending?after=x", "secret", "", 400},
		{"GET", "/recipe/v1/pending?wait=x", "secret", "", 400},
		{"GET", "/elsewhere", "secret", "", 404},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s %s with token %q: %d %s, want %d", c.method, c.path, c.token, w.Code, w.Body, c.want)
		}
	}
}

// A pipe among the streams would hold up whoever opens it, and each file that is opened for nothing stays open.
func TestAStreamThatIsUnknownIsNotOpened(t *testing.T) {
	t.Parallel()
	s := testServer(func(c *Config) { c.Dir = t.TempDir() })
	if err := errors.Join(os.MkdirAll(s.versions.dir, 0o700),
		syscall.Mkfifo(filepath.Join(s.versions.dir, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/recipe/v1/packed/pipe", nil)
	r.SetPathValue("name", "pipe")
	s.versions.serve(w, r)
	if w.Code != http.StatusNotFound {
		t.Errorf("got status %d, want 404", w.Code)
	}
}

func TestACheckpointHasTheVersionOfItsWeights(t *testing.T) {
	t.Parallel()
	s := testServer(nil)
	attach(t, s, 1)
	if got := s.VersionOf(0); got != 0 {
		t.Errorf("the weights before the first step have version %d", got)
	}
	for step := int64(1); step < 4; step++ {
		if got := s.VersionOf(step); got != step { // written before the weights are handed over, as with save_every = 1
			t.Errorf("step %d: version %d before it is served", step, got)
		}
		taken := settle(t, s, "")
		if _, err := s.Sync(t.Context(), step, testSnapshot{}); err != nil {
			t.Fatal(err)
		}
		<-taken
		if got := s.VersionOf(step); got != step {
			t.Errorf("step %d: version %d when it is served", step, got)
		}
	}
	resumed := testServer(func(c *Config) { c.Version, c.Resumed = 7, true })
	if got := resumed.VersionOf(45); got != 8 {
		t.Errorf("weights that a resumed trainer hands over next have version %d, want 8", got)
	}
}

// A sync block that has attached to the trainer's earlier process, at the same port, is answered at once that there is
// nothing: it attaches then, and the trainer does not wait for the end of the question.
func TestAQuestionBeforeAttachingDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if p := testServer(nil).next(t.Context(), 0, time.Minute); p != nil || time.Now() != began {
			t.Errorf("%v after %v, want nothing, at once", p, time.Since(began))
		}
	})
}
