package sdk

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// testGate is a gate whose trainer is the test.
func testGate(change func(*gateConfig)) *gate {
	c := gateConfig{
		address: "trainer.t.a", syncedBy: []string{"sync.s.a"}, attachDeadline: 5 * time.Second, silence: 5 * time.Second,
		publish:  func(_ context.Context, r PublishRequest) (Weights, error) { return Weights{Version: r.Version}, nil },
		logprobs: func(_ context.Context, tokens []int) ([]float64, error) { return make([]float64, len(tokens)-1), nil },
		raised:   func(int64) {},
	}
	if change != nil {
		change(&c)
	}
	return newGate(c)
}

// settle answers the next publication from another goroutine, as a sync block does.
func settle(t *testing.T, g *gate, outcome string) <-chan Publication {
	t.Helper()
	taken := make(chan Publication, 1)
	go func() {
		p := g.next(context.Background(), 0, 10*time.Second)
		if p == nil {
			close(taken)
			return
		}
		taken <- *p
		if err := g.done(SyncDone{Version: p.Version, Error: outcome}); err != nil {
			t.Error(err)
		}
	}()
	return taken
}

func attach(t *testing.T, g *gate, every int64) {
	t.Helper()
	if err := g.attach(SyncAttach{Address: "sync.s.a", Every: every, Transport: "reload"}); err != nil {
		t.Fatal(err)
	}
}

func TestGateLetsATrainerWithoutSyncPass(t *testing.T) {
	t.Parallel()
	g := testGate(func(c *gateConfig) { c.syncedBy, c.version = nil, 4 })
	if v, err := g.sync(t.Context(), 1); v != 4 || err != nil {
		t.Errorf("version %d, %v", v, err)
	}
}

func TestGatePublishesOnItsPeriod(t *testing.T) {
	t.Parallel()
	g := testGate(nil)
	attach(t, g, 2)
	for step, want := range []int64{0, 0, 1, 1, 2} {
		var taken <-chan Publication
		if step == 2 || step == 4 {
			taken = settle(t, g, "")
		}
		v, err := g.sync(t.Context(), int64(step))
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

func TestGateOfAResumedTrainerPublishesFirstAndNeverGoesBack(t *testing.T) {
	t.Parallel()
	g := testGate(func(c *gateConfig) { c.version, c.resumed = 3, true })
	// Inference is further than the engine has recorded.
	if err := g.attach(SyncAttach{Address: "sync.s.a", Every: 100, Version: 7}); err != nil {
		t.Fatal(err)
	}
	taken := settle(t, g, "")
	if v, err := g.sync(t.Context(), 33); v != 8 || err != nil {
		t.Errorf("version %d, %v; want 8", v, err)
	}
	if p := <-taken; p.Version != 8 || p.Step != 33 {
		t.Errorf("publication %+v", p)
	}
}

func TestGateNamesASyncBlockThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	g := testGate(func(c *gateConfig) { c.attachDeadline = 20 * time.Millisecond })
	if _, err := g.sync(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "sync.s.a has not attached to trainer.t.a") {
		t.Errorf("never attached: %v", err)
	}
	g = testGate(func(c *gateConfig) { c.silence = 50 * time.Millisecond })
	attach(t, g, 1)
	if _, err := g.sync(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "sync.s.a has been silent") {
		t.Errorf("silent: %v", err)
	}
	if g.state().Pending != nil {
		t.Error("the publication is still offered")
	}
}

func TestGateFailsWithTheReasonOfTheSyncBlock(t *testing.T) {
	t.Parallel()
	g := testGate(nil)
	attach(t, g, 1)
	settle(t, g, "the server has other weights")
	var e *Error
	v, err := g.sync(t.Context(), 1)
	if v != 0 || !errors.As(err, &e) || e.Detail != "the server has other weights" || !strings.Contains(e.Summary, "sync.s.a") {
		t.Errorf("version %d, %v", v, err)
	}
}

func TestGateEndsWithItsContext(t *testing.T) {
	t.Parallel()
	g := testGate(nil)
	attach(t, g, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := g.sync(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := g.call(1, func() error { return nil }); err == nil {
		t.Error("weights can be read although the trainer has gone on")
	}
}

func TestGateRefusesWhatItShould(t *testing.T) {
	t.Parallel()
	g := testGate(nil)
	for name, a := range map[string]SyncAttach{
		"no address": {Every: 1}, "no period": {Address: "sync.s.a"}, "undeclared": {Address: "sync.other.b", Every: 1},
	} {
		if g.attach(a) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	attach(t, g, 1)
	attach(t, g, 2) // the same block again, after a restart
	free := testGate(func(c *gateConfig) { c.syncedBy = nil })
	attach(t, free, 1)
	if free.attach(SyncAttach{Address: "sync.s.b", Every: 1}) == nil {
		t.Error("a second sync block was accepted")
	}
	if g.done(SyncDone{Version: 5}) == nil {
		t.Error("a version that was never offered was acknowledged")
	}
	if g.call(1, func() error { return nil }) == nil {
		t.Error("weights can be read although nothing waits")
	}
}

func TestGateOverHTTPDemandsItsToken(t *testing.T) {
	t.Parallel()
	handler := testGate(nil).handler("secret")
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

func TestLeaseCountsItsOwnTicks(t *testing.T) {
	t.Parallel()
	l := &lease{tick: time.Second, whole: 3 * time.Second, left: 3 * time.Second}
	spent := func(n int) (over bool) {
		for range n {
			over = l.spend()
		}
		return over
	}
	if spent(2) {
		t.Error("it ran out too early")
	}
	l.contact()()
	if spent(2) || !spent(1) {
		t.Error("a contact does not start it anew")
	}
	over := l.contact()
	if spent(10) {
		t.Error("it runs out during a call")
	}
	over()
	l.set(0)
	if spent(10) {
		t.Error("a detached block runs out")
	}
}
