package gateway

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// An admission that has begun while a replica was up waits for it to come up again, with the lock that Adopt needs. Its
// weights may be gone by then: those that were adopted are what it will come up with.
func TestAdoptedWeightsDuringAnAdmission(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var adopted atomic.Int64
	loading, loads := make(chan struct{}), atomic.Int32{}
	g := start(t, Config{
		Down:  down.Load,
		Adopt: func(w sdk.Weights) error { adopted.Store(w.Version); return nil },
		Update: func(ctx context.Context, _ []Replica, _ WeightUpdate) error {
			if loads.Add(1) == 1 {
				return nil
			}
			close(loading)
			<-ctx.Done() // until a server is up
			return context.Cause(ctx)
		},
	}, newEngine(t))
	update := func(version int64) WeightUpdate { return WeightUpdate{Weights: sdk.Weights{Version: version}} }
	if _, err := g.UpdateWeights(t.Context(), update(1)); err != nil {
		t.Fatal(err)
	}
	admitted := make(chan error)
	go func() { admitted <- g.Admit(t.Context(), "0", UnknownVersion) }()
	<-loading
	if err := g.Adopt(within(t), update(2)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while a replica is up: %v; want the deadline, for the admission goes on", err)
	}
	down.Store(true)
	if err := g.Adopt(t.Context(), update(2)); err != nil || adopted.Load() != 2 || g.Version() != 2 {
		t.Errorf("adopted version %d, the gateway's is %d: %v", adopted.Load(), g.Version(), err)
	}
	if err := <-admitted; !errors.Is(err, errOvertaken) {
		t.Errorf("the admission ended with %v", err)
	}
}

// within is a context that ends soon.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
