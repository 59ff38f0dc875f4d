package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/internal/archive"
	"github.com/recipe-rl/recipe/sdk"
)

// Stored is a configuration that names a store for copies of the checkpoints: the SDK uploads each one that the trainer
// reports, and fetches the newest for an attempt on a machine that does not have it.
type Stored interface {
	// CheckpointStore is the store's address, in the form of objectstore.Form; empty: there is none.
	CheckpointStore() string
}

func storeOf(config any) string {
	if s, ok := config.(Stored); ok {
		return s.CheckpointStore()
	}
	return ""
}

// stopShare is the part of the time after a stop that the last upload may take.
const stopShare = 0.9

// keep opens the store of a block's checkpoints, and fetches the newest if this machine has none as new. What it
// returns is called with how the block has ended, when the last checkpoint has been reported.
func (h *host) keep(ctx context.Context, address string, block *sdk.Block) (func(error) error, error) {
	if address == "" {
		return func(err error) error { return err }, nil
	}
	var err error
	if h.archive, err = archive.Open(address, *block, h); err != nil {
		return nil, err
	}
	path, err := h.archive.Start(ctx, block.Resume)
	if err != nil {
		_ = h.archive.Close(ended)
		return nil, err
	}
	if path != "" {
		h.Log("info", "it goes on from "+path)
	}
	if err := h.lost(address, block); err != nil {
		_ = h.archive.Close(ended)
		return nil, err
	}
	asked := make(chan time.Time, 1)
	stop := context.AfterFunc(ctx, func() { asked <- time.Now() })
	return func(how error) error {
		closing := context.Background()
		switch {
		case !stop(): // it is to stop
			limit := (<-asked).Add(time.Duration(stopShare * float64(h.Grace())))
			var cancel context.CancelFunc
			closing, cancel = context.WithDeadline(closing, limit)
			defer cancel()
		case how != nil: // the next attempt takes up what is not uploaded
			_ = h.archive.Close(ended)
			return how
		}
		return errors.Join(how, h.archive.Close(closing))
	}, nil
}

// lost is the error of a block that would start at step 0 though the run has recorded a checkpoint of it.
func (h *host) lost(address string, block *sdk.Block) error {
	if !block.Resume || block.RecordedStep == 0 {
		return nil
	}
	if _, name, err := h.archive.NewestHere(); err != nil || name != "" {
		return err
	}
	return &sdk.Error{Summary: fmt.Sprintf("the checkpoint of step %d is neither in %s nor in %s, and it would start at "+
		"step 0", block.RecordedStep, block.CheckpointDir, address),
		Remedy: "put it back, or start over with recipe apply --from-scratch"}
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (h *host) Checkpoint(c sdk.CheckpointInfo) {
	if err := h.tokens.checkpoint(c.Step); err != nil {
		h.Log("warn", fmt.Sprintf("%s of step %d is not kept: %v", MetricTokens, c.Step, err))
	}
	c.Version = h.weights.VersionOf(c.Step)
	h.Host.Checkpoint(c)
	if h.archive != nil {
		h.archive.Add(c)
	}
}
