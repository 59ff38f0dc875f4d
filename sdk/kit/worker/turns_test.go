package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheWorkerTakesTurnsWhereItsGPUIsShared(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", nil)
	h.shared = true
	if err := tr.Run(t.Context(), req, h); err != nil {
		t.Fatalf("Run: %v; log %q", err, h.logs)
	}
	if fmt.Sprint(h.turns) != "[1 2 3]" && !slices.Equal(slices.Compact(slices.Clone(h.turns)), []int64{1, 2, 3}) {
		t.Errorf("turns were asked for steps %v; want each of three steps", h.turns)
	}
	if fmt.Sprint(h.synced) != "[1 2 3]" {
		t.Errorf("Sync was called for steps %v", h.synced)
	}
}

func TestTheWorkerIsToldOnceThatNobodySharesItsGPU(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", nil)
	if err := tr.Run(t.Context(), req, h); err != nil {
		t.Fatalf("Run: %v; log %q", err, h.logs)
	}
	reported := 0
	for _, line := range h.logs {
		if strings.Contains(line, "asks for turns: false") {
			reported++
		}
	}
	if reported != 1 {
		t.Errorf("the worker was reported %d times, want once: %q", reported, h.logs)
	}
}

func TestATurnThatCannotBeHadFailsTheTrainer(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", nil)
	h.shared, h.failTurn = true, errors.New("inference does not sleep")
	if err := tr.Run(t.Context(), req, h); err == nil || !strings.Contains(err.Error(), "inference does not sleep") {
		t.Errorf("Run: %v", err)
	}
	if len(h.synced) > 0 {
		t.Errorf("it trained all the same: synced %v", h.synced)
	}
}

// A turn that never comes blocks neither a trainer that is stopped, nor one whose worker has died.
func TestAWishForATurnEndsWithTheWorker(t *testing.T) {
	t.Parallel()
	tr, h, req := start(t, "", nil)
	h.shared, h.noTurn = true, true
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx, req, h) }()
	h.await(t, "a wish", func() bool {
		return slices.ContainsFunc(h.phases, func(p string) bool { return strings.Contains(p, "has a batch") })
	})
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("Run did not return")
	}
	if last := h.checkpoints; len(last) != 1 {
		t.Errorf("checkpoints %+v, want the one of the stop", last)
	}
}
