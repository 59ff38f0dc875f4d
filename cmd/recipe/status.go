package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	enginerun "github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
)

func newStatus(a *app) *cobra.Command {
	var (
		file   string
		asJSON bool
		ask    whyFlags
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a run: phases, steps, reward, policy version",
		Long: `Show the state of a run: phases, steps, reward, policy version.

With --why it asks every block what it waits for and follows that from block to block, to the cause of a stall. It
needs the run's engine; without one it shows the engine's last report.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, run, err := locateRun(file)
			if err != nil {
				return err
			}
			if ask.why || ask.stacks {
				return ask.show(cmd.Context(), a, dir, asJSON)
			}
			holder := state.Holder(dir)
			run, seen := look(cmd.Context(), dir, run, holder)
			snap, err := snapshot.Read(dir.Events())
			if err != nil {
				return err
			}
			view.Complete(snap, run)
			seen.Overlay(snap)
			standing := view.Standing(run, holder)
			foreign := foreignTo(cmd, dir)
			if foreign != nil {
				standing = view.Elsewhere
			}
			if asJSON {
				return view.StatusJSON(a.out, run, snap, holder, foreign, seen)
			}
			if err := view.Status(a.out, a.style(), run.Recipe, standing, snap, time.Now()); err != nil {
				return err
			}
			if err := view.Troubles(a.out, a.style(), seen); err != nil {
				return err
			}
			return view.Foreign(a.out, a.style(), foreign)
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	ask.add(cmd)
	return cmd
}

// answerWithin bounds the engine's answer to a status request; after it, status uses the record on disk.
const answerWithin = 3 * time.Second

// look determines the current state of a run: from its engine, or, without one, from the live processes. The record is
// the engine's if it answers: it may hold what could not be written yet.
func look(ctx context.Context, dir state.Dir, run *state.Run, holder *state.Owner) (*state.Run, view.Seen) {
	if holder == nil {
		_, found, err := enginerun.Observe(ctx, dir, enginerun.Processes{})
		if err != nil {
			return run, view.Seen{Silent: err.Error()}
		}
		return run, view.Unwatched(run, found)
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	client, err := session.Dial(ctx, dir)
	if errors.Is(err, session.ErrNoEngine) { // it is starting or ending
		return run, view.Seen{}
	}
	if err != nil {
		return run, view.Seen{Silent: err.Error()}
	}
	defer client.Close()
	now, err := client.Status(ctx)
	switch {
	case errors.Is(err, enginerun.ErrOver):
		return run, view.Seen{}
	case err != nil:
		return run, view.Seen{Silent: err.Error()}
	}
	return now.Run, view.Watched(now.Live, now.Waiting)
}

// foreignTo returns why a run directory is a copy of another, or nil.
func foreignTo(cmd *cobra.Command, dir state.Dir) *state.ForeignError {
	var foreign *state.ForeignError
	if errors.As(enginerun.Belongs(cmd.Context(), dir, enginerun.Processes{}), &foreign) {
		return foreign
	}
	return nil
}
