package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/why"
)

// whyFlags are the flags of status that ask what a run waits for.
type whyFlags struct {
	why, stacks bool
	after       time.Duration
}

func (f *whyFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.why, "why", false, "say what each block waits for, down to the cause of a stall")
	cmd.Flags().BoolVar(&f.stacks, "stacks", false,
		"with --why: where every thread of the block at the cause is, and of its programs")
	cmd.Flags().DurationVar(&f.after, "after", why.DefaultAfter,
		"with --why: the `TIME` without progress after which a block counts as stalled")
}

// show asks the engine of a run, or reads what the last one wrote down.
func (f *whyFlags) show(ctx context.Context, a *app, dir state.Dir, asJSON bool) error {
	d, err := f.ask(ctx, dir)
	if err != nil {
		return err
	}
	if asJSON {
		return view.JSON(a.out, d)
	}
	return view.Why(a.out, a.style(), d)
}

func (f *whyFlags) ask(ctx context.Context, dir state.Dir) (*why.Document, error) {
	c, err := session.Dial(ctx, dir)
	if err == nil {
		defer c.Close()
		return c.Why(ctx, session.WhyRequest{After: f.after, Stacks: f.stacks})
	}
	snap, err := snapshot.Read(dir.Events())
	if err != nil {
		return nil, err
	}
	return view.WhyFromLog(snap, time.Now()), nil
}
