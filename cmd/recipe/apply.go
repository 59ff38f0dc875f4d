package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/doctor"
	"github.com/recipe-rl/recipe/engine/packages"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/printable"
	"github.com/recipe-rl/recipe/engine/run"
	"github.com/recipe-rl/recipe/engine/session"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk"
)

// applyFlags are what a person chose for one apply.
type applyFlags struct {
	recipe  recipeFlags
	policy  planPolicies
	targets []string
	approve bool
	saved   string
	keep    bool
	detach  bool
	ui      bool
	plain   bool
	asJSON  bool
	locked  packages.Options
}

func newApply(a *app) *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply [FILE]",
		Short: "Show the plan, ask for approval, and apply it",
		Long: `Show the plan, ask for approval, and apply it: blocks start as soon as the blocks they need are ready, jobs run
to their end, then services stop in reverse order. Live blocks of an earlier apply are adopted; stopped jobs continue
from their newest checkpoint. When another engine already owns the run, the change is sent to it.

Plugins from packages that are not locked yet are fetched and locked first, as by recipe init.

Ctrl-C drains: jobs write a checkpoint and end, and the run can be applied again. The exit code is then 4, as after
recipe stop: the run has not completed, so a script must not go on as if it had. A second Ctrl-C, at least a second
later, kills. SIGTERM drains and never kills. When the terminal is closed, the run continues as with --detach.

At a terminal the run fills the screen until it ends: ? lists the keys, q continues with lines. In a pipe, in the
background of a shell, with TERM=dumb or --plain it prints lines.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			saved, args, err := f.savedPlan(args)
			if err != nil {
				return err
			}
			if f.ui && f.detach {
				return errors.New("--ui serves the dashboard from this process, which --detach ends: use recipe ui " +
					"beside it")
			}
			file, err := recipeFile(args)
			if err != nil {
				return err
			}
			f.locked.Frozen = f.locked.Frozen || saved != nil
			if err := a.lockPackages(cmd.Context(), file, "", f.locked, false, a.err); err != nil {
				return err
			}
			a.tellRuns()
			if f.approve || saved != nil { // the person's word for all that the recipe names
				a.gate().Approve = true
				a.gate().Trust(trust.All)
			}
			s, err := a.open(cmd.Context(), &f.recipe, args, f.targets, f.asJSON)
			if err != nil {
				return err
			}
			if err := a.allowBlocks(s.Recipe); err != nil {
				return err
			}
			p, asked, err := f.policy.plan(cmd.Context(), a, s)
			if err != nil {
				return err
			}
			if saved != nil {
				if err := s.Fits(saved, p); err != nil {
					return err
				}
				if saved.Plan.Denied() {
					return a.denied(saved.Plan)
				}
			}
			if !f.asJSON {
				if err := view.Plan(a.out, a.style(), p); err != nil {
					return err
				}
			}
			if p.Denied() {
				return a.denied(p)
			}
			if errs := p.Errors(); len(errs) > 0 {
				return cannotApply(errs, f.asJSON)
			}
			if idle(p) {
				if s.Dir.Exists() { // its folder may have been moved since the last apply
					a.remember(s.Dir)
				}
				return a.nothingToDo(s, p, f.asJSON)
			}
			if err := a.canRun(cmd.Context(), s); err != nil {
				return err
			}
			if err := a.approve(cmd.Context(), f.approve || saved != nil, "Apply this plan?",
				"check the plan with recipe plan"); err != nil {
				return err
			}
			approved := p
			if f.approve && saved == nil && !asked {
				// whatever is to be done when the run is opened: a process may die in between, another apply begin
				approved = nil
			}
			if live := s.Live(cmd.Context()); live != nil {
				defer live.Close()
				return a.handOver(cmd.Context(), live, s, p, approved)
			}
			a.gate().Settle() // what another apply adds to the run is asked about by that one
			a.remember(s.Dir)
			if f.detach {
				err = a.detach(cmd.Context(), s, approved, f.keep)
			} else {
				err = a.apply(cmd.Context(), s, approved, &f)
			}
			if locked := (*state.LockedError)(nil); errors.As(err, &locked) {
				if live := s.Live(cmd.Context()); live != nil { // another apply was faster
					defer live.Close()
					return a.handOverNow(cmd.Context(), live, s, approved)
				}
			}
			if err != nil || f.detach || f.asJSON || p.Trains() ||
				p.Status != state.Completed {
				return err
			}
			return view.NothingTrained(a.out, a.style(), s.Recipe, p)
		},
	}
	f.recipe.add(cmd)
	f.policy.add(cmd)
	addTarget(cmd, &f.targets)
	addFromScratch(cmd, &f.recipe)
	addJSON(cmd, &f.asJSON)
	cmd.Flags().BoolVarP(&f.approve, "auto-approve", "y", false, "do not ask")
	cmd.Flags().StringVar(&f.saved, "plan", "",
		"apply exactly the plan that recipe plan --out saved in this file, with its variables, settings and targets, "+
			"without asking; fails when the recipe, a plugin or the run has changed")
	cmd.Flags().BoolVarP(&f.detach, "detach", "d", false, "run in a separate engine process and return")
	addPlain(cmd, &f.plain)
	addLocked(cmd, &f.locked.Frozen)
	cmd.Flags().BoolVar(&f.keep, "keep", false,
		"keep services running when the last job has ended, until the run is stopped")
	cmd.Flags().BoolVar(&f.ui, "ui", false,
		"serve the dashboard on this machine meanwhile (recipe ui shows it afterwards)")
	return cmd
}

// canRun says before a person is asked why no run can be started here; nil: nothing is known to be in its way. An
// engine that is live already starts whatever is to be started.
func (a *app) canRun(ctx context.Context, s *session.Session) error {
	if live := s.Live(ctx); live != nil {
		live.Close()
		return nil
	}
	return doctor.CanRun(a.machine(s.Recipe.Dir))
}

// cannotApply is the refusal of a plan with errors. With --json nobody has seen the plan, so it names them.
func cannotApply(errs []plan.Finding, unseen bool) error {
	summary := "the plan has 1 error and cannot be applied"
	remedy := "do what it asks for, and plan again"
	if len(errs) != 1 {
		summary = fmt.Sprintf("the plan has %d errors and cannot be applied", len(errs))
		remedy = "do what they ask for, and plan again"
	}
	refusal := &sdk.Error{Summary: summary, Remedy: remedy}
	if unseen {
		refusal.Detail = strings.Join(named(errs), "\n")
	}
	return refusal
}

// denied says that policies do not let a plan be applied. Their reasons stand in the plan, which --json does not print.
func (a *app) denied(p *plan.Plan) error {
	s := a.errStyle()
	fmt.Fprintf(a.err, "%s policies denied the plan; nothing was changed\n", s.Red(s.Bold("Error:")))
	for _, line := range named(p.Errors()) {
		fmt.Fprintln(a.err, "  "+line)
	}
	if a.json && !a.joined {
		var items []diagnostic.Item
		for _, finding := range p.Errors() {
			items = append(items, itemOf(finding))
		}
		return errors.Join(diagnostic.Failure(items...).Write(a.out), exitError(exitDenied))
	}
	return exitError(exitDenied)
}

// named has one line for each finding: what it is about and what it says.
func named(findings []plan.Finding) []string {
	lines := make([]string, len(findings))
	for i, f := range findings {
		lines[i] = f.Subject() + ": " + f.Summary
	}
	return lines
}

// nothingToDo shows once more what the run came to, when it has ended.
func (a *app) nothingToDo(s *session.Session, p *plan.Plan, asJSON bool) error {
	if asJSON || p.Status != state.Completed {
		return nil
	}
	snap, err := snapshot.Read(s.Dir.Events())
	if err != nil {
		return err
	}
	if err := a.conclude(s, snap); err != nil {
		return err
	}
	return view.NothingTrained(a.out, a.style(), s.Recipe, p)
}

// savedPlan reads the plan of --plan, which also says which recipe is meant. Who saved a plan and names it has approved
// it.
func (f *applyFlags) savedPlan(args []string) (*session.Saved, []string, error) {
	if f.saved == "" {
		return nil, args, nil
	}
	saved, err := session.ReadSaved(f.saved)
	if err != nil {
		return nil, nil, err
	}
	if len(args) == 0 {
		args = []string{saved.File}
		if _, err := os.Stat(saved.File); errors.Is(err, fs.ErrNotExist) {
			return nil, nil, &sdk.Error{
				Summary: fmt.Sprintf("the saved plan %s is of the recipe %s, which is not here", f.saved, saved.File),
				Remedy:  "apply it in the folder in which it was made, or in another checkout of it"}
		}
	}
	f.recipe.planned, f.recipe.savedID = saved.Variables, saved.ID
	f.recipe.fromScratch = f.recipe.fromScratch || saved.FromScratch
	if f.recipe.settings, err = saved.Set(f.recipe.settings); err != nil {
		return nil, nil, err
	}
	if len(f.targets) == 0 {
		for _, target := range saved.Targets {
			f.targets = append(f.targets, target.String())
		}
	}
	return saved, args, nil
}

// idle reports that a plan has no changes and no live blocks to adopt.
func idle(p *plan.Plan) bool {
	for _, op := range p.Operations {
		if op.Changes() || op.Alive {
			return false
		}
	}
	return true
}

// handOver gives the plan p to the engine that works on the run; approved is nil when whatever that engine would plan
// is approved.
func (a *app) handOver(ctx context.Context, live *session.Client, s *session.Session, p, approved *plan.Plan) error {
	// A recipe may differ in what no block has: its outputs.
	if run, err := state.Read(s.Dir); !p.Changes() && err == nil && run.Digest == p.Digest {
		return a.handedOver(view.HandedOver{Outcome: "unchanged"},
			"An engine already runs it as declared; recipe logs -f shows its progress.")
	}
	if _, err := live.Apply(ctx, s.Request, approved); err != nil {
		return err
	}
	return a.handedOver(view.HandedOver{Outcome: "sent"},
		"Sent to the engine of the run; recipe logs -f shows its progress.")
}

// handOverNow is handOver to an engine that has started since the plan was made.
func (a *app) handOverNow(ctx context.Context, live *session.Client, s *session.Session, approved *plan.Plan) error {
	p, err := s.Plan(ctx)
	if err != nil {
		return err
	}
	return a.handOver(ctx, live, s, p, approved)
}

// apply runs the plan in this process while a view follows the event log, and says at the end what came of it.
func (a *app) apply(ctx context.Context, s *session.Session, p *plan.Plan, f *applyFlags) error {
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	dashboard := ""
	if f.ui {
		address, stop, err := a.uiBeside(watching, s.Dir)
		if err != nil {
			return err
		}
		defer stop()
		dashboard = address
	}
	began := time.Now()
	// Ctrl-C is a key in the live view, and a signal to this process elsewhere.
	v := a.viewOf(s.Dir, s.Recipe.Name, began, f.plain || f.asJSON, dashboard,
		func() { _ = syscall.Kill(os.Getpid(), syscall.SIGINT) })
	w := &watcher{live: v, done: make(chan watched, 1)}
	orders := listen(reactions{draining: w.live.Draining, killing: w.live.Killing, leaving: func() {
		w.leave()
		a.leaveTerminal(s.Dir)
	}})
	defer orders.close()
	a.watch(watching, w, s.Dir.Events(), began, f.asJSON)

	_, err := s.Apply(context.WithoutCancel(ctx), p, session.ApplyOptions{
		Command: "apply " + s.Recipe.File, Keep: f.keep, Stop: orders.stop, Kill: orders.kill,
	})
	cancel()
	b := <-w.done
	if b.err != nil && err == nil {
		err = b.err
	}
	if err != nil {
		if b.snap != nil && !f.asJSON {
			_ = view.LeftOut(a.out, a.style(), b.snap) // the failure is what counts
		}
		return failed(err)
	}
	stopped := b.snap.Status == string(state.Stopped)
	switch {
	case f.asJSON:
	case stopped:
		if err = view.LeftOut(a.out, a.style(), b.snap); err != nil {
			break
		}
		err = view.Stopped(a.out, a.style(), again(s.Recipe, f.targets), changedSince(s))
	default:
		err = a.conclude(s, b.snap)
	}
	if err == nil && !f.asJSON {
		err = view.Behind(a.out, a.style(), s.Behind())
	}
	if err != nil && !gone(err) { // the run has ended; lost output is already reported
		return err
	}
	if stopped {
		return exitError(exitStopped)
	}
	return nil
}

// changedSince reports whether another apply has changed the run that this one began.
func changedSince(s *session.Session) bool {
	run, err := state.Read(s.Dir)
	return err == nil && run.Digest != s.Recipe.Digest
}

// again is the command that continues a run, with the same arguments.
func again(r *schema.Recipe, targets []string) string {
	words := append([]string{"recipe", "apply"}, r.Arguments()...)
	for _, target := range targets {
		words = append(words, "--target", target)
	}
	return printable.ShellWords(append(words, r.File)...)
}

// conclude describes what a run that has ended came to.
func (a *app) conclude(s *session.Session, snap *snapshot.Snapshot) error {
	// What is shown is what was recorded: sensitive outputs are not in it.
	rec, err := state.Read(s.Dir)
	if err != nil {
		return err
	}
	view.Best(snap, rec)
	if err := view.Summary(a.out, a.style(), snap); err != nil {
		return err
	}
	if err := view.RunOutputs(a.out, a.style(), rec.Outputs); err != nil {
		return err
	}
	return view.Next(a.out, a.style(), s.Recipe)
}

// failed turns the end of a run into an error with the words that a person needs.
func failed(err error) error {
	var unclean *run.UncleanError
	if errors.As(err, &unclean) {
		return notInOrder(unclean)
	}
	var f *run.Failure
	if !errors.As(err, &f) {
		return err
	}
	return &sdk.Error{Summary: f.Address.String() + " failed", Err: f.Err, Detail: view.LastLines(f.Last),
		Remedy: f.Remedy}
}

// notInOrder describes what the stop of a run could not do.
func notInOrder(e *run.UncleanError) error {
	var lines, remedies []string
	for _, f := range e.Blocks {
		lines = append(lines, fmt.Sprintf("%s: %v", f.Address, f.Err))
		if f.Remedy != "" && !slices.Contains(remedies, f.Remedy) {
			remedies = append(remedies, f.Remedy)
		}
	}
	return &sdk.Error{
		Summary: "the run is stopped, but some blocks did not stop cleanly", Detail: strings.Join(lines, "\n"),
		Remedy: strings.Join(append(remedies, "recipe apply continues the run"),
			"; "),
	}
}
