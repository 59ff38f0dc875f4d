package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/internal/nearest"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// blockFlags are the flags of a command that makes one block of a live run do something.
type blockFlags struct {
	file    string
	timeout time.Duration
	json    bool
}

func (f *blockFlags) add(cmd *cobra.Command, timeout time.Duration) {
	addRun(cmd, &f.file)
	addJSON(cmd, &f.json)
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, "time out after this duration, for example 90s or 2h")
}

func newCheckpoint(a *app) *cobra.Command {
	var f blockFlags
	cmd := &cobra.Command{
		Use:   "checkpoint ADDRESS",
		Short: "Make a trainer save a checkpoint now",
		Long: `Make the trainer at ADDRESS save a checkpoint now, and return when it is complete on the disk. Training
continues afterwards. The trainer saves between two optimizer steps, so this may take as long as a step and a save.`,
		Example: "  recipe checkpoint trainer.grpo.policy",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onDemand(cmd, args[0], &f,
				func(ctx context.Context, live *session.Client, block addr.Block) error {
					saved, err := live.Checkpoint(ctx, block)
					if err != nil {
						return err
					}
					if f.json {
						return view.JSON(a.out, saved)
					}
					_, err = fmt.Fprintf(a.out, "%s saved step %d (policy version %d) in %s\n", block, saved.Step,
						saved.PolicyVersion, saved.Path)
					return err
				})
		},
	}
	f.add(cmd, 30*time.Minute)
	return cmd
}

// errOnDemandTimeout ends the waiting for a block.
var errOnDemandTimeout = errors.New("timed out")

// onDemand connects to the engine of a run and makes a block do something, within the time that a person chose.
func (a *app) onDemand(cmd *cobra.Command, address string, f *blockFlags,
	do func(context.Context, *session.Client, addr.Block) error) error {
	block, err := addr.Parse(address)
	if err != nil {
		return err
	}
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout is %s; expected a positive time, for example 10m", f.timeout)
	}
	dir, rec, err := a.ownRun(cmd, f.file)
	if err != nil {
		return err
	}
	live, err := session.Dial(cmd.Context(), dir)
	if errors.Is(err, session.ErrNoEngine) {
		return noEngine(block, dir, rec)
	}
	if err != nil {
		return err
	}
	defer live.Close()
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), f.timeout, errOnDemandTimeout)
	defer cancel()
	err = do(ctx, live, block)
	if err != nil && errors.Is(context.Cause(ctx), errOnDemandTimeout) {
		return &sdk.Error{
			Summary: fmt.Sprintf("timed out after %s waiting for %s", f.timeout, block),
			Remedy:  "recipe status --why shows its activities; use a larger --timeout to wait longer",
		}
	}
	return err
}

// noEngine explains why no command reaches a block.
func noEngine(block addr.Block, dir state.Dir, rec *state.Run) error {
	file := printable.ShellWord(recipePath(dir, rec))
	if rec.Blocks[block] == nil {
		return noBlock(block, rec)
	}
	if rec.Status == state.Running {
		return &sdk.Error{
			Summary: fmt.Sprintf("%s cannot be reached: the engine of its run was killed", block),
			Remedy:  session.Again(dir, recipePath(dir, rec)) + " adopts the live processes; then try again",
		}
	}
	e := &sdk.Error{Summary: fmt.Sprintf("%s is not running: its run is %s", block, rec.Status)}
	again := session.Again(dir, recipePath(dir, rec)) + " restarts it from its newest checkpoint"
	switch {
	case block.Kind == kind.Environment:
		e.Remedy = fmt.Sprintf("recipe evaluate %s -r %s --samples 4 evaluates the newest checkpoint without a live run",
			block, file)
		if rec.Status != state.Completed { // of a completed run nothing is left to apply
			e.Remedy += "; " + again
		}
	case rec.Status != state.Completed:
		e.Remedy = again
	default:
		e.Remedy = "its jobs are done: recipe show names the checkpoints that they left; with more steps in " + file +
			", recipe apply continues it"
	}
	return e
}

// noBlock names which blocks of the kind a run has had.
func noBlock(block addr.Block, rec *state.Run) error {
	var known []string
	for b := range rec.Blocks {
		if b.Kind == block.Kind {
			known = append(known, b.String())
		}
	}
	slices.Sort(known)
	return &sdk.Error{
		Summary: fmt.Sprintf("no block %s in this run (its blocks of kind %s: %s)", block, block.Kind,
			strings.Join(known, ", ")),
		Remedy: didYouMean(nearest.Name(block.String(), known)) + "recipe status lists its blocks",
	}
}
