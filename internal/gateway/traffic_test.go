package gateway

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestPulseCountsRequests counts requests at an engine that waits, and those that a hold keeps back.
func TestPulseCountsRequests(t *testing.T) {
	t.Parallel()
	e, clock := newEngine(t), newClock()
	g := start(t, Config{Clock: clock}, e)
	if p := g.Traffic(); p.InFlight != 0 || p.Waiting != 0 || !p.Sign.IsZero() || p.Held {
		t.Errorf("before the first request: %+v", p)
	}
	entered, release := blocking(e)
	began := clock.Now()
	first := background(t, g, "/v1/completions", prompt)
	<-entered
	clock.advance(4 * time.Minute)
	if p := g.Traffic(); p.InFlight != 1 || !p.Oldest.Equal(began) || !p.Sign.IsZero() {
		t.Errorf("the engine has a request for four minutes: %+v", p)
	}
	held := make(chan error, 1)
	go func() {
		_, err := g.Hold(context.Background(), HoldRequest{ID: "sync", Reason: "weights", Mode: ModeKeep})
		held <- err
	}()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	second := background(t, g, "/v1/completions", prompt)
	eventually(t, "the second request to wait", func() bool { return g.Status().Waiting == 1 })
	if p := g.Traffic(); p.Waiting != 1 || !p.Held || p.Reason != "weights" || p.Since.IsZero() {
		t.Errorf("held: %+v", p)
	}
	close(release)
	if r := <-first; r.status != 200 {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	if p := g.Traffic(); p.InFlight != 0 || p.Sign.Before(began.Add(4*time.Minute)) {
		t.Errorf("after the answer: %+v", p)
	}
	if err := g.Resume("sync"); err != nil {
		t.Fatal(err)
	}
	<-second
}

// TestPulseSeesEveryPieceOfAStream distinguishes a long answer from an engine that hangs.
func TestPulseSeesEveryPieceOfAStream(t *testing.T) {
	t.Parallel()
	e, clock := newEngine(t), newClock()
	g := start(t, Config{Clock: clock}, e)
	piece := make(chan bool)
	e.set(nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range piece {
			_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
	})
	done := background(t, g, "/v1/completions", `{"model":"policy","prompt":"hi","stream":true}`)
	for i := range 3 {
		clock.advance(time.Minute)
		now := clock.Now()
		piece <- true
		eventually(t, "the piece to be noticed", func() bool { return g.Traffic().Sign.Equal(now) })
		if p := g.Traffic(); p.InFlight != 1 {
			t.Errorf("piece %d: %+v", i, p)
		}
	}
	close(piece)
	<-done
}
