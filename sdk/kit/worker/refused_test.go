package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// A worker whose request failed may have ended before the failure is looked at here. What it ended for is that failure,
// unless its own end was the cause.
func TestAWorkerEndsForTheRequestThatFailed(t *testing.T) {
	t.Parallel()
	reason := errors.New("served weights differ")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx     context.Context
		failure error
		want    error
	}{
		"the sync block refused":       {t.Context(), reason, reason},
		"nothing failed":               {t.Context(), nil, nil},
		"the worker was gone":          {t.Context(), fmt.Errorf("bring the weights: %w", errGone), nil},
		"broken off by the end":        {t.Context(), fmt.Errorf("bring the weights: %w", context.Canceled), nil},
		"the block is being stopped":   {stopped, reason, nil},
		"being stopped, nothing wrong": {stopped, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWatch(&Trainer[Config]{})
			if c.failure != nil {
				w.failed <- c.failure
			}
			if err := w.refused(c.ctx); !errors.Is(err, c.want) {
				t.Errorf("ended for %v, want %v", err, c.want)
			}
		})
	}
	// From end to end, often enough and beside each other, so that the worker's end is looked at first in some.
	for n := range 8 {
		t.Run(fmt.Sprintf("each time %d", n), func(t *testing.T) {
			t.Parallel()
			for range 8 {
				tr, h, req := start(t, "", nil)
				h.failSync = reason
				if err := tr.Run(t.Context(), req, h); !errors.Is(err, reason) {
					t.Fatalf("ended for %v, want %v", err, reason)
				}
			}
		})
	}
}
