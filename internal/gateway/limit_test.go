package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// holding makes an engine keep requests until they are let go, one for each value that is sent.
func holding(e *fakeEngine) (letGo chan struct{}) {
	letGo = make(chan struct{})
	e.set(func(r *http.Request) {
		if r.URL.Path == "/v1/completions" {
			<-letGo
		}
	}, nil)
	return letGo
}

// limited is a gateway whose engine, which keeps requests, gets this number of sequences at once.
func limited(t *testing.T, sequences int) (e *fakeEngine, g *Gateway, letGo chan struct{}) {
	t.Helper()
	e = newEngine(t)
	letGo = holding(e)
	g = start(t, Config{}, e)
	g.SetConcurrency(sequences)
	return e, g, letGo
}

// asking is a request whose prompt names it.
func asking(name string, n int) string {
	return fmt.Sprintf(`{"model":"policy","prompt":%q,"n":%d,"max_tokens":8}`, name, n)
}

// order is which of the names the engine has seen, in order.
func order(e *fakeEngine, names ...string) (seen []string) {
	for _, r := range e.seen() {
		for _, name := range names {
			if strings.Contains(r.body, `"`+name+`"`) {
				seen = append(seen, name)
			}
		}
	}
	return seen
}

func TestALimitOfConcurrency(t *testing.T) {
	t.Parallel()
	e, g, letGo := limited(t, 2)
	var done []<-chan reply
	names := []string{"a", "b", "four", "c", "d"}
	for i, name := range names {
		n := 1
		if name == "four" {
			n = 4
		}
		done = append(done, background(t, g, "/v1/completions", asking(name, n)))
		eventually(t, name+" to arrive", func() bool { s := g.Status(); return s.InFlight+s.Waiting == i+1 })
	}
	eventually(t, "two requests at the engine", func() bool { return len(order(e, names...)) == 2 })
	if s := g.Status(); s.InFlight != 2 || s.Waiting != 3 || s.Replicas[0].Limit != 2 || s.Replicas[0].Sequences != 2 {
		t.Errorf("status %+v", s)
	}
	if why := g.Traffic(); !why.Full || !strings.Contains(why.Why, "at most 2 at once") {
		t.Errorf("why: %+v", why)
	}
	// What needs no computing is answered meanwhile.
	if r := post(t, g, "/tokenize", `{"prompt":"x"}`); r.status != http.StatusOK {
		t.Errorf("/tokenize: %d", r.status)
	}
	letGo <- struct{}{}
	eventually(t, "an answer", func() bool { return g.Status().InFlight == 1 })
	late := background(t, g, "/v1/completions", asking("late", 1)) // there is room for it, and not for those before
	eventually(t, "the late one to wait", func() bool { return g.Status().Waiting == 4 })
	if got := order(e, append(names, "late")...); len(got) != 2 {
		t.Errorf("the engine saw %v: four sequences go alone, and nothing overtakes them", got)
	}
	letGo <- struct{}{}
	eventually(t, "the four sequences", func() bool { return len(order(e, names...)) == 3 })
	if s := g.Status(); s.InFlight != 1 || s.Replicas[0].Sequences != 4 {
		t.Errorf("status %+v", s)
	}
	for range 4 {
		letGo <- struct{}{}
	}
	for i, ch := range append(done, late) {
		if r := <-ch; r.status != http.StatusOK {
			t.Errorf("request %d: %d %s", i, r.status, r.body)
		}
	}
	if got := order(e, names...)[2:]; got[0] != "four" || !slices.Contains(got, "c") || !slices.Contains(got, "d") {
		t.Errorf("order %v", got)
	}
}

// TestSequencesOfARequest counts what an engine would compute at once.
func TestSequencesOfARequest(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`{"prompt":"a"}`: 1, `{"prompt":"a","n":3}`: 3, `{"prompt":"a","n":"3"}`: 3, `{"prompt":["a","b"],"n":3}`: 6,
		`{"prompt":[[1,2],[3]]}`: 2, `{"prompt":[1,2,3],"n":2}`: 2, `{"prompt":[],"n":0}`: 1, `{"prompt":"a","n":-1}`: 1,
		`{"prompt":"a","n":1e308}`: maxN, `{"prompt":"a","n":"NaN"}`: 1, `{"prompt":["a","b"],"n":4,"temperature":0}`: 2,
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/completions", nil)
		if got := newCall(r, "/v1/completions", []byte(body)).sequences; got != want {
			t.Errorf("%s: %d sequences, want %d", body, got, want)
		}
	}
}

func TestLeavingTheLine(t *testing.T) {
	t.Parallel()
	e, g, letGo := limited(t, 1)
	first := background(t, g, "/v1/completions", asking("a", 1))
	eventually(t, "the first", func() bool { return g.Status().InFlight == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := send(ctx, g, "/v1/completions", asking("gone", 1))
		gone <- err
	}()
	eventually(t, "one to wait", func() bool { return g.Status().Waiting == 1 })
	last := background(t, g, "/v1/completions", asking("b", 1))
	eventually(t, "two to wait", func() bool { return g.Status().Waiting == 2 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "one to wait", func() bool { return g.Status().Waiting == 1 })
	letGo <- struct{}{}
	letGo <- struct{}{}
	for _, ch := range []<-chan reply{first, last} {
		if r := <-ch; r.status != http.StatusOK {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if got := order(e, "a", "gone", "b"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the engine saw %v", got)
	}
}

func TestAnAbortedRequestKeepsItsPlace(t *testing.T) {
	t.Parallel()
	e, g, letGo := limited(t, 1)
	aborted := background(t, g, "/v1/completions", asking("aborted", 1))
	eventually(t, "the first", func() bool { return g.Status().InFlight == 1 })
	other := background(t, g, "/v1/completions", asking("other", 1))
	eventually(t, "one to wait", func() bool { return g.Status().Waiting == 1 })
	h, err := g.Hold(t.Context(), HoldRequest{Mode: ModeAbort, Reason: "an update"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "two to wait", func() bool { return g.Status().Waiting == 2 })
	if err := g.Resume(h.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the aborted one to be sent again", func() bool { return len(order(e, "aborted", "other")) == 2 })
	for range 3 { // the engine still computes what was aborted
		letGo <- struct{}{}
	}
	for _, ch := range []<-chan reply{aborted, other} {
		if r := <-ch; r.status != http.StatusOK {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if got := order(e, "aborted", "other"); !slices.Equal(got, []string{"aborted", "aborted", "other"}) {
		t.Errorf("the engine saw %v", got)
	}
}

// Requests that wait for room are refused only when the engine has answered nobody for HoldTimeout.
func TestWaitingForRoom(t *testing.T) {
	t.Parallel()
	clock, e := newClock(), newEngine(t)
	letGo := holding(e)
	g := start(t, Config{Clock: clock, HoldTimeout: time.Minute}, e)
	g.SetConcurrency(1)
	var done []<-chan reply
	for i := range 4 {
		done = append(done, background(t, g, "/v1/completions", asking(fmt.Sprint("r", i), 1)))
		eventually(t, "a request", func() bool { s := g.Status(); return s.InFlight+s.Waiting == i+1 })
	}
	for i := range 2 {
		clock.advance(50 * time.Second)
		letGo <- struct{}{}
		if r := <-done[i]; r.status != http.StatusOK {
			t.Fatalf("request %d: %d %s", i, r.status, r.body)
		}
		eventually(t, "the next one", func() bool { return len(order(e, "r0", "r1", "r2", "r3")) == i+2 })
	}
	eventually(t, "the last to wait on", func() bool { return g.Status().Waiting == 1 && clock.pending() == 1 })
	clock.advance(time.Minute)
	if r := <-done[3]; r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "at most 1 at once") {
		t.Errorf("%d %s", r.status, r.body)
	}
	letGo <- struct{}{}
	<-done[2]
}

func TestTheLimitFollowsReports(t *testing.T) {
	t.Parallel()
	clock, e := newClock(), newEngine(t)
	letGo := holding(e)
	var usage atomic.Pointer[Usage]
	usage.Store(&Usage{})
	var asked atomic.Int64
	g := start(t, Config{Clock: clock, Usage: func(context.Context, Replica) (Usage, error) {
		asked.Add(1)
		return *usage.Load(), nil
	}}, e)
	g.SetConcurrency(0)
	limit := func() int { return g.Status().Replicas[0].Limit }
	tick := func() {
		before := asked.Load()
		eventually(t, "a report", func() bool { clock.advance(usageEvery); return asked.Load() > before })
		eventually(t, "it to be noted", func() bool { return clock.pending() > 0 })
	}
	var done []<-chan reply
	for i := range 3 {
		done = append(done, background(t, g, "/v1/completions", asking(fmt.Sprint("r", i), 1)))
		eventually(t, "a request", func() bool { s := g.Status(); return s.InFlight+s.Waiting == i+1 })
	}
	usage.Store(&Usage{Cache: .5, Running: 1})
	tick()
	if got := limit(); got != 1 {
		t.Errorf("limit %d of an engine half of whose cache one sequence fills, want 1", got)
	}
	fourth := background(t, g, "/v1/completions", asking("fourth", 1))
	eventually(t, "the fourth to wait", func() bool { return g.Status().Waiting == 1 })
	usage.Store(&Usage{Cache: .01, Running: 3})
	for limit() < 4 {
		tick()
	}
	eventually(t, "the fourth at the engine", func() bool { return len(order(e, "fourth")) == 1 })
	for range 4 {
		letGo <- struct{}{}
	}
	for _, ch := range append(done, fourth) {
		if r := <-ch; r.status != http.StatusOK {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}

// An engine that is being started again, or loads weights, is not asked: that it does not answer says nothing.
func TestAnEngineThatIsNotReadyIsNotAsked(t *testing.T) {
	t.Parallel()
	clock, e := newClock(), newEngine(t)
	var log events
	var asked atomic.Int64
	var away atomic.Bool
	g := start(t, Config{Clock: clock, Events: log.add, Usage: func(context.Context, Replica) (Usage, error) {
		asked.Add(1)
		if away.Load() {
			return Usage{}, errors.New("replica 0 is gone; it is being started again")
		}
		return Usage{Running: 1}, nil
	}})
	g.SetConcurrency(0)
	away.Store(true)
	if err := g.SetReplicas([]Replica{{ID: "0", URL: e.URL}}); err != nil {
		t.Fatal(err)
	}
	if err := g.SetReplicaHealthy("0", true, ""); err != nil { // it can be updated, and gets no requests
		t.Fatal(err)
	}
	for range 3 * usageTries {
		clock.advance(usageEvery)
		eventually(t, "the next look", func() bool { return clock.pending() > 0 })
	}
	if n := asked.Load(); n > 0 || log.count(EventNoUsage) > 0 {
		t.Errorf("asked %d times, %d events", n, log.count(EventNoUsage))
	}
	away.Store(false)
	if err := g.Admit(t.Context(), "0", 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a report", func() bool { clock.advance(usageEvery); return asked.Load() > 0 })
	if got := g.Status().Replicas[0].Limit; got != 64 {
		t.Errorf("limit %d, want 64", got)
	}
}

func TestAnEngineThatReportsNothing(t *testing.T) {
	t.Parallel()
	clock, e := newClock(), newEngine(t)
	var log events
	g := start(t, Config{Clock: clock, Events: log.add, Usage: func(context.Context, Replica) (Usage, error) {
		return Usage{}, errors.New("GET /metrics: 404")
	}}, e)
	g.SetConcurrency(0)
	limit := func() int { return g.Status().Replicas[0].Limit }
	if got := limit(); got != 64 {
		t.Errorf("limit %d before the first report, want 64", got)
	}
	g.mu.Lock()
	for range 2 * usageTries {
		before := g.replicas[0].limit.failed
		away := fmt.Errorf("%w: replica 0 is gone", ErrAway)
		if g.noteUsageLocked(g.replicas[0], Usage{}, away) || g.replicas[0].limit.failed != before {
			t.Error("an engine that is being started counts as one that does not report")
		}
	}
	g.mu.Unlock()
	eventually(t, "no limit", func() bool { clock.advance(usageEvery); return limit() == 0 })
	eventually(t, "one event", func() bool { return log.count(EventNoUsage) == 1 })
}

// TestReportsThatAreNoLoad leaves the limit as it was, and the status readable.
func TestReportsThatAreNoLoad(t *testing.T) {
	t.Parallel()
	silent := func(ctx context.Context, _ Replica) (Usage, error) {
		<-ctx.Done()
		return Usage{}, ctx.Err()
	}
	g := start(t, Config{Usage: silent}, newEngine(t))
	g.SetConcurrency(0)
	note := func(u Usage) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.noteUsageLocked(g.replicas[0], u, nil)
	}
	note(Usage{Cache: .05, Running: 1})
	before := g.Status().Replicas[0].Limit
	for _, u := range []Usage{{Cache: math.NaN(), Running: 1}, {Cache: 1e308, Running: 1},
		{Cache: math.Inf(1), Running: 1}, {Cache: -1, Running: 1},
		{Cache: .01, Running: math.MinInt}, {Cache: .01, Running: 1, Capacity: math.Inf(1)},
		{Cache: .01, Running: 1, Preemptions: math.Inf(1)}, {Cache: .01, Running: 1, Tokens: math.NaN()}} {
		note(u)
		s := g.Status()
		if _, err := json.Marshal(s); err != nil || s.Replicas[0].Limit != before {
			t.Errorf("after %+v: limit %d, want %d; %v", u, s.Replicas[0].Limit, before, err)
		}
	}
}
