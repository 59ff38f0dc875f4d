package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
)

// detach leaves an approved plan to an engine process of its own.
func (a *app) detach(ctx context.Context, s *session.Session, p *plan.Plan, keep bool) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	d, err := s.Detach(ctx, []string{self, "engine"}, session.Handover{Request: s.Request, Approved: p, Keep: keep})
	if err != nil {
		return err
	}
	if d.Over {
		return a.handedOver(view.HandedOver{Outcome: "ended"},
			"The run has already ended; recipe status shows the result.")
	}
	return a.handedOver(view.HandedOver{Outcome: "detached", Engine: d.PID}, fmt.Sprintf(
		"The run continues in engine process %d. recipe status and recipe logs -f show it; recipe stop ends it "+
			"at a checkpoint.", d.PID))
}

// handedOver names which other process has the run.
func (a *app) handedOver(to view.HandedOver, text string) error {
	if a.json {
		return to.Write(a.out)
	}
	_, err := fmt.Fprintln(a.out, text)
	return err
}

// newEngine is the command behind apply --detach; people do not call it.
func newEngine(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "engine",
		Short:  "Run the engine of apply --detach, which reads its run from standard input",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := session.ReadHandover(a.in)
			if err != nil {
				return err
			}
			catalog, err := a.catalog()
			if err != nil {
				return err
			}
			// The approved plan is made again here, with GPUs dealt in the same way, and so are those of later applies.
			s, _, diags := session.Open(h.Request, catalog, run.Processes{Catalog: catalog},
				a.sizing(cmd.Context(), h.Request.File, catalog))
			if s == nil {
				return diags
			}
			orders := listen(reactions{draining: func() {}, killing: func() {}, leaving: func() {}})
			defer orders.close()
			_, err = s.Apply(context.WithoutCancel(cmd.Context()), h.Approved, session.ApplyOptions{
				Command: "apply --detach " + s.Recipe.File, Detached: true, Keep: h.Keep, Attempt: h.Attempt,
				Log: h.Log, Stop: orders.stop, Kill: orders.kill,
			})
			return err
		},
	}
}
