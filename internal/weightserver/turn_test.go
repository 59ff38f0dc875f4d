package weightserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// attachShared attaches a sync block under which inference sleeps.
func attachShared(t *testing.T, s *Server, every int64) {
	t.Helper()
	if err := s.attach(Attach{Address: "sync.s.a", Every: every, Transport: "reload", Colocated: true}); err != nil {
		t.Fatal(err)
	}
}

// serveTurns does what a sync block does, until the context ends, and reports its requests.
func serveTurns(ctx context.Context, t *testing.T, s *Server, asked chan<- Publication) {
	for ctx.Err() == nil {
		p := s.next(ctx, 0, time.Minute)
		if p == nil {
			return
		}
		asked <- *p
		var err error
		if p.Kind == TurnWanted {
			err = s.give(TurnGiven{Step: p.Step})
		} else {
			err = s.done(Done{Version: p.Version})
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTurnsOfATrainerThatSharesItsGPU(t *testing.T) {
	t.Parallel()
	s := testServer(nil)
	attachShared(t, s, 2)
	if !s.Shared() {
		t.Error("the GPU is shared, and the trainer is not informed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan Publication, 10)
	over := make(chan struct{})
	go func() { defer close(over); serveTurns(ctx, t, s, asked) }()
	want := []Publication{
		{Kind: TurnWanted, Version: 0, Step: 1}, {Kind: TurnOver, Version: 0, Step: 1}, // no version is due
		{Kind: TurnWanted, Version: 0, Step: 2}, {Kind: WeightsReady, Version: 1, Step: 2},
		// the batch led to no step: step 2 again, which is not published twice
		{Kind: TurnWanted, Version: 1, Step: 3},
		{Kind: TurnOver, Version: 1, Step: 2},
	}
	for i, step := range []int64{1, 2, 2} {
		if err := s.WaitTurn(t.Context(), int64(i+1)); err != nil {
			t.Fatal(err)
		}
		if !s.state().Turn {
			t.Error("the state does not say that the trainer has its turn")
		}
		if err := s.WaitTurn(t.Context(), int64(i+1)); err != nil { // it has it
			t.Fatal(err)
		}
		if v, err := s.Sync(t.Context(), step, testSnapshot{}); err != nil || v != min(int64(i), 1) {
			t.Errorf("step %d: version %d, %v", step, v, err)
		}
		if s.state().Turn {
			t.Error("the turn did not end")
		}
	}
	cancel()
	<-over
	for _, w := range want {
		if got := <-asked; got != w {
			t.Errorf("asked for %+v, want %+v", got, w)
		}
	}
}

func TestTurnsThatNobodyNeeds(t *testing.T) {
	t.Parallel()
	alone := testServer(func(c *Config) { c.SyncedBy = nil })
	if err := alone.WaitTurn(t.Context(), 1); err != nil {
		t.Errorf("without a sync block: %v", err)
	}
	apart := testServer(nil)
	attach(t, apart, 1)
	if err := apart.WaitTurn(t.Context(), 1); err != nil || apart.Shared() {
		t.Errorf("with GPUs of their own: %v", err)
	}
	if err := apart.give(TurnGiven{Step: 1}); err == nil {
		t.Error("a turn that nobody wants was given")
	}
}

func TestATurnThatIsNotGiven(t *testing.T) {
	t.Parallel()
	var e *sdk.Error
	refused := testServer(nil)
	attachShared(t, refused, 1)
	go func() {
		p := refused.next(context.Background(), 0, time.Minute)
		if err := refused.give(TurnGiven{Step: p.Step, Error: "the server does not sleep"}); err != nil {
			t.Error(err)
		}
	}()
	if err := refused.WaitTurn(t.Context(), 1); !errors.As(err, &e) || e.Detail != "the server does not sleep" ||
		!strings.Contains(e.Summary, "sync.s.a") {
		t.Errorf("refused: %v", err)
	}

	silent := testServer(func(c *Config) { c.silence = 50 * time.Millisecond })
	attachShared(t, silent, 1)
	if err := silent.WaitTurn(t.Context(), 1); err == nil ||
		!strings.Contains(err.Error(), "sync.s.a has been silent") {
		t.Errorf("silent: %v", err)
	}

	ended := testServer(nil)
	attachShared(t, ended, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := ended.WaitTurn(ctx, 1); !errors.Is(err, context.DeadlineExceeded) ||
		ended.next(t.Context(), 0, 0) != nil {
		t.Errorf("ended: %v, or the wish stands still", err)
	}

	// The sync block comes back with another configuration: no trainer has to wait.
	changed := testServer(nil)
	attachShared(t, changed, 1)
	go func() {
		changed.next(context.Background(), 0, time.Minute)
		if err := changed.attach(Attach{Address: "sync.s.a", Every: 1}); err != nil {
			t.Error(err)
		}
	}()
	if err := changed.WaitTurn(t.Context(), 1); err != nil {
		t.Errorf("changed: %v", err)
	}
}
