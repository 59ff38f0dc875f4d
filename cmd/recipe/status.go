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
		file                 string
		asJSON, watch, plain bool
		ask                  whyFlags
	)
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of a run: phases, steps, reward, policy version",
		Long: `Show the state of a run: phases, steps, reward, policy version.

With --why it asks every block what it waits for and follows that from block to block, to the cause of a stall. It
needs the run's engine; without one it shows the engine's last report.

With --watch at a terminal it shows the live view of recipe apply: ? lists its keys, q leaves it and the run continues.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, run, err := locateRun(file)
			if err != nil {
				return err
			}
			if ask.why || ask.stacks {
				return ask.show(cmd.Context(), a, dir, asJSON)
			}
			if watch {
				return a.watchRun(cmd.Context(), dir, run, plain)
			}
			return a.showStatus(cmd.Context(), dir, run, asJSON)
		},
	}
	addRun(cmd, &file)
	addJSON(cmd, &asJSON)
	ask.add(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the run while it goes on: a live view at a terminal, else "+
		"lines until it ends")
	addPlain(cmd, &plain)
	for _, other := range []string{"json", "why", "stacks"} {
		cmd.MarkFlagsMutuallyExclusive("watch", other)
	}
	return cmd
}

// showStatus prints the state of a run.
func (a *app) showStatus(ctx context.Context, dir state.Dir, run *state.Run, asJSON bool) error {
	holder := state.Holder(dir)
	catalog, err := a.catalog()
	if err != nil {
		return err
	}
	run, seen := look(ctx, dir, run, holder, enginerun.Processes{Catalog: catalog})
	snap, err := snapshot.Read(dir.Events())
	if err != nil {
		return err
	}
	view.Complete(snap, run)
	seen.Overlay(snap)
	standing := view.Standing(run, holder)
	if seen.Ending != nil {
		standing = "stopping"
	}
	foreign := foreignTo(ctx, dir)
	if foreign != nil {
		standing = view.Elsewhere
	}
	seen.Builds = session.OtherBuilds(ctx, dir, catalog.Build, holder, run)
	if asJSON {
		return view.StatusJSON(a.out, run, snap, holder, foreign, seen)
	}
	if err := view.Status(a.out, a.style(), run.Recipe, standing, snap, time.Now()); err != nil {
		return err
	}
	if err := view.RunOutputs(a.out, a.style(), run.Outputs); err != nil {
		return err
	}
	if err := view.Troubles(a.out, a.style(), seen); err != nil {
		return err
	}
	return view.Foreign(a.out, a.style(), foreign)
}

// watchRun shows a run while it goes on, and its state in the end.
func (a *app) watchRun(ctx context.Context, dir state.Dir, run *state.Run, plain bool) error {
	v := a.viewOf(dir, run.Recipe, time.Now(), plain, "", nil)
	_, lines := v.(*view.Live)
	if running := run.Status == state.Running && state.Holder(dir) != nil; !lines || running {
		v.Lost(func(error) {}) // a reader that has gone does not concern the run
		if _, err := v.Follow(ctx, dir.Events()); err != nil {
			return err
		}
	}
	run, err := state.Read(dir)
	if err != nil {
		return err
	}
	return a.showStatus(ctx, dir, run, false)
}

// answerWithin bounds the engine's answer to a status request; after it, status uses the record on disk.
const answerWithin = 3 * time.Second

// look determines the current state of a run: from its engine, or, without one, from the live processes. The record is
// the engine's if it answers: it may hold what could not be written yet.
func look(ctx context.Context, dir state.Dir, run *state.Run, holder *state.Owner,
	host enginerun.Host) (*state.Run, view.Seen) {
	if holder == nil {
		_, found, err := enginerun.Observe(ctx, dir, host)
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
	seen := view.Watched(now.Live, now.Waiting)
	seen.Healed, seen.Ending = now.Healed, now.Ending
	return now.Run, seen
}

// foreignTo returns why a run directory is a copy of another, or nil.
func foreignTo(ctx context.Context, dir state.Dir) *state.ForeignError {
	var foreign *state.ForeignError
	if errors.As(enginerun.Belongs(ctx, dir, enginerun.Processes{}), &foreign) {
		return foreign
	}
	return nil
}
