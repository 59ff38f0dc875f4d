package trajectories

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/recipe-rl/recipe/plugins/trajectories/archive"
	"github.com/recipe-rl/recipe/sdk"
)

// stopShare is the part of the time after a stop that the last copies of samples may take.
const stopShare = 0.9

// samplesDir is the folder of the record of samples.
func samplesDir(req sdk.Request[Block]) string {
	return filepath.Join(req.RunDir, "samples", filepath.Base(req.Dir))
}

// copied begins to copy the record of samples to the store that the block names. What it returns is called with how the
// block has ended, when the record is closed.
func copied(ctx context.Context, req sdk.Request[Block], host sdk.Host) (func(error) error, error) {
	if req.Config.SamplesStore == "" {
		return func(err error) error { return err }, nil
	}
	a, err := archive.Open(ctx, req.Config.SamplesStore, samplesDir(req), req.Block, host, archive.Usual)
	if err != nil {
		return nil, err
	}
	asked := make(chan time.Time, 1)
	stop := context.AfterFunc(ctx, func() { asked <- time.Now() })
	return func(how error) error {
		if stop() { // nobody asked it to end: the next attempt copies what is left
			_ = a.Close(ended)
			return how
		}
		limit := (<-asked).Add(time.Duration(stopShare * float64(host.Grace())))
		closing, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit)
		defer cancel()
		return errors.Join(how, a.Close(closing))
	}, nil
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
