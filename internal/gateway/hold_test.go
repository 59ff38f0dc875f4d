package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

const prompt = `{"model":"policy","prompt":[1,2,3],"logprobs":0,"return_token_ids":true}`

// blocking makes the engine wait in each request until release is closed; entered counts the requests that arrived.
func blocking(e *fakeEngine) (entered chan struct{}, release chan struct{}) {
	entered, release = make(chan struct{}, 100), make(chan struct{})
	e.set(func(r *http.Request) {
		entered <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}, nil)
	return entered, release
}

// background sends a request; the channel gets its reply.
func background(t *testing.T, g *Gateway, path, body string) chan reply {
	t.Helper()
	out := make(chan reply, 1)
	go func() {
		r, err := send(context.Background(), g, path, body)
		if err != nil {
			r.body = err.Error()
		}
		out <- r
	}()
	return out
}

func TestHoldDrains(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	entered, release := blocking(e)
	first := background(t, g, "/v1/completions", prompt)
	<-entered
	held := make(chan error, 1)
	go func() {
		_, err := g.Hold(context.Background(), HoldRequest{ID: "sync", Reason: "weights"})
		held <- err
	}()
	eventually(t, "the gate to close", func() bool { return g.Status().Held })
	second := background(t, g, "/v1/completions", prompt)
	eventually(t, "the second request to wait", func() bool { return g.Status().Waiting == 1 })
	select {
	case err := <-held:
		t.Fatalf("Hold returned (%v) with a request in flight", err)
	default:
	}
	close(release)
	if r := <-first; r.status != 200 {
		t.Fatalf("the request in flight got %d %s", r.status, r.body)
	}
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	if s := g.Status(); s.InFlight != 0 || s.Waiting != 1 || len(e.seen()) != 1 {
		t.Fatalf("after draining: %+v, %d requests at the engine", s, len(e.seen()))
	}
	if err := g.Resume("somebody else"); !errors.Is(err, ErrNotHeld) {
		t.Errorf("resuming by a wrong ID: %v, want ErrNotHeld", err)
	}
	if err := g.Resume("sync"); err != nil {
		t.Fatal(err)
	}
	if r := <-second; r.status != 200 {
		t.Errorf("the held request got %d %s", r.status, r.body)
	}
}

//docs:survival.md pause and update race
func TestHoldIsExclusiveAndRenewed(t *testing.T) {
	t.Parallel()
	clock := newClock()
	ev := &events{}
	g := start(t, Config{Clock: clock, Events: ev.add}, newEngine(t))
	ctx := context.Background()
	h, err := g.Hold(ctx, HoldRequest{Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Hold(ctx, HoldRequest{}); !errors.Is(err, ErrHeld) {
		t.Errorf("a second hold: %v, want ErrHeld", err)
	}
	clock.advance(50 * time.Second)
	if _, err := g.Hold(ctx, HoldRequest{ID: h.ID, Lease: time.Minute}); err != nil {
		t.Errorf("renewing: %v", err)
	}
	clock.advance(50 * time.Second)
	if !g.Status().Held {
		t.Error("a renewed hold ran out at its first lease")
	}
	clock.advance(11 * time.Second)
	if g.Status().Held || ev.count(EventHoldExpired) != 1 {
		t.Errorf("held %v, %d expiries; want the hold to have run out once", g.Status().Held, ev.count(EventHoldExpired))
	}
	if err := g.Resume(h.ID); !errors.Is(err, ErrNotHeld) {
		t.Errorf("resuming what ran out: %v, want ErrNotHeld", err)
	}
}

//docs:survival.md out of memory when inference wakes up
//docs:troubleshooting.md A trainer killed between pause and resume
func TestExpiredHoldRecoversEnginesFirst(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		clock := newClock()
		e := newEngine(t)
		recovered := 0
		g := start(t, Config{Clock: clock, Recover: func(_ context.Context, list []Replica) error {
			recovered = len(list)
			if fails {
				return errors.New("engine is gone")
			}
			return nil
		}}, e)
		if _, err := g.Hold(context.Background(), HoldRequest{Mode: ModeKeep, Lease: time.Minute}); err != nil {
			t.Fatal(err)
		}
		waiting := background(t, g, "/v1/completions", prompt)
		eventually(t, "the request to wait", func() bool { return g.Status().Waiting == 1 })
		clock.advance(time.Minute)
		if recovered != 1 {
			t.Fatalf("Recover was called for %d replicas, want 1", recovered)
		}
		if !fails {
			if r := <-waiting; r.status != 200 {
				t.Errorf("after the lease: %d %s", r.status, r.body)
			}
			continue
		}
		eventually(t, "the request to wait again", func() bool { return g.Status().Waiting == 1 })
		clock.advance(10 * time.Minute)
		if r := <-waiting; r.status != 503 || !strings.Contains(r.body, "engine is gone") {
			t.Errorf("with engines that did not come back: %d %s, want 503 with the reason", r.status, r.body)
		}
	}
}

//docs:survival.md a weight update hangs silently
func TestHoldTimeoutNamesTheReason(t *testing.T) {
	t.Parallel()
	clock := newClock()
	e := newEngine(t)
	g := start(t, Config{Clock: clock, HoldTimeout: time.Minute}, e)
	if _, err := g.Hold(context.Background(),
		HoldRequest{Lease: 10 * time.Minute, Reason: "weight update to version 9"}); err != nil {
		t.Fatal(err)
	}
	waiting := background(t, g, "/generate", `{"prompt":[1]}`)
	eventually(t, "the request to wait", func() bool { return g.Status().Waiting == 1 })
	clock.advance(time.Minute)
	r := <-waiting
	if r.status != 503 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, "weight update to version 9") {
		t.Errorf("got %d %v %s, want 503 with Retry-After and the reason", r.status, r.header, r.body)
	}
	if n := len(e.seen()); n != 0 {
		t.Errorf("%d requests reached the engine during a hold", n)
	}
}

//docs:survival.md a weight update hangs silently
func TestDrainThatDoesNotEndReleases(t *testing.T) {
	t.Parallel()
	clock := newClock()
	e := newEngine(t)
	g := start(t, Config{Clock: clock}, e)
	entered, release := blocking(e)
	defer close(release)
	first := background(t, g, "/v1/completions", prompt)
	<-entered
	held := make(chan error, 1)
	go func() {
		_, err := g.Hold(context.Background(), HoldRequest{Drain: time.Second})
		held <- err
	}()
	eventually(t, "the gate to close", func() bool { return g.Status().Held })
	eventually(t, "the drain timer", func() bool { clock.advance(2 * time.Second); return !g.Status().Held })
	if err := <-held; err == nil || !strings.Contains(err.Error(), "1 requests still in flight") {
		t.Errorf("Hold: %v, want it to name the request in flight", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, err := g.Hold(ctx, HoldRequest{})
		held <- err
	}()
	eventually(t, "the gate to close", func() bool { return g.Status().Held })
	cancel() // the trainer died while it waited for draining
	if err := <-held; !errors.Is(err, context.Canceled) {
		t.Errorf("Hold: %v, want context.Canceled", err)
	}
	if g.Status().Held {
		t.Error("still held after the owner of an unfinished hold went away")
	}
	release <- struct{}{}
	<-first
}

func TestAbortSendsAgain(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	g := start(t, Config{}, e)
	entered, release := blocking(e)
	first := background(t, g, "/v1/completions", prompt)
	<-entered
	if _, err := g.Hold(context.Background(), HoldRequest{ID: "a", Mode: ModeAbort}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the aborted request to wait", func() bool { return g.Status().Waiting == 1 })
	if err := g.SetVersion(5); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := g.Resume("a"); err != nil {
		t.Fatal(err)
	}
	r := <-first
	if r.status != 200 || gjson.Get(r.body, "policy_version").Int() != 5 {
		t.Errorf("got %d %s, want an answer by version 5 alone", r.status, r.body)
	}
	if n := len(e.seen()); n != 2 {
		t.Errorf("the engine saw %d requests, want the aborted one and its repetition", n)
	}
}

func TestCloseRefusesWaitingRequests(t *testing.T) {
	t.Parallel()
	g := start(t, Config{}, newEngine(t))
	if _, err := g.Hold(context.Background(), HoldRequest{}); err != nil {
		t.Fatal(err)
	}
	waiting := background(t, g, "/v1/completions", prompt)
	eventually(t, "the request to wait", func() bool { return g.Status().Waiting == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := g.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if r := <-waiting; r.status != 503 {
		t.Errorf("got %d %s, want 503", r.status, r.body)
	}
}

func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	g := start(t, Config{MaxWaiting: 1}, newEngine(t))
	if _, err := g.Hold(context.Background(), HoldRequest{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	waiting := background(t, g, "/v1/completions", prompt)
	eventually(t, "the request to wait", func() bool { return g.Status().Waiting == 1 })
	if r := post(t, g, "/v1/completions", prompt); r.status != 503 ||
		gjson.Get(r.body, "error.type").Str != "too_many_waiting" {
		t.Errorf("one too many: %d %s", r.status, r.body)
	}
	if err := g.Resume(""); err != nil {
		t.Fatal(err)
	}
	<-waiting
}
