package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
)

// The groups of `recipe --help`.
const (
	groupWrite = "write"
	groupRun   = "run"
	groupLook  = "look"
	groupTools = "tools"
)

// newRoot builds the command tree. It makes no catalog, opens no file and starts nothing.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "recipe",
		Short: "Declare, plan and run RL post-training of language models",
		Long: `recipe is to RL post-training of language models what Terraform is to infrastructure: one file declares
inference, environments, trainer and weight sync; plan says what would happen, and apply makes it happen and keeps it
happening.

Exit codes: 0 done; 1 failed; 2 changes pending (plan --detailed-exitcode only); 3 denied by a policy; 4 the run was
stopped before its end (apply only), and another apply continues it; 5 not checked: the recipe names a program that is
not trusted, and there is no other error. NO_COLOR turns colors off; into a pipe every
command writes plain lines, with --json machine-readable ones.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		CompletionOptions: cobra.CompletionOptions{
			DisableDefaultCmd: true,
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.AddGroup(
		&cobra.Group{ID: groupWrite, Title: "Write a recipe:"},
		&cobra.Group{ID: groupRun, Title: "Run it:"},
		&cobra.Group{ID: groupLook, Title: "Inspect a run:"},
		&cobra.Group{ID: groupTools, Title: "Tools:"},
	)
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	// heedless is for commands that do not watch their context, as they only read and write files: a signal ends them.
	heedless := func(c *cobra.Command) *cobra.Command {
		c.PersistentPreRun = func(*cobra.Command, []string) { a.endAtSignals() }
		return c
	}
	add(groupWrite, heedless(newNew(a)), newInit(a), heedless(newValidate(a)), heedless(newFmt(a)), heedless(newGraph(a)),
		heedless(newConsole(a)), newTest(a))
	add(groupRun, newDemo(a), newPlan(a), newApply(a), newStop(a), newPause(a), newResume(a), newRestart(a),
		newEvaluate(a), newEvaluations(a), newCheckpoint(a), newFork(a),
		newDestroy(a), newClaim(a))
	add(groupLook, heedless(newRuns(a)), newReport(a), newStatus(a), newLogs(a), newUI(a), heedless(newShow(a)),
		newOutput(a), newTrajectories(a), heedless(newLineage(a)), heedless(newDiff(a)))
	add(groupTools, newLSP(a), newMCP(a), newRunAPI(a), newDoctor(a), newPlugin(a), newModule(a), newEnv(a), newTrust(a),
		newService(a), heedless(newCompletion(a)), heedless(newVersion(a)))
	root.AddCommand(newDocs(a), newEngine(a), newAgentCommand(a))
	root.SetHelpCommandGroupID(groupTools)
	explainUsage(root)
	addCompletions(root, a)
	return root
}

// execute runs one command line and returns the program's exit code.
func execute(ctx context.Context, a *app, args []string) int {
	a.json, a.ended = asksForJSON(args), ctx.Done()
	a.commands = a.err
	a.guardWorkflow(args)
	a.out, a.err = view.Guard(a.out), view.Guard(a.err)
	root := newRoot(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var name string
	if err != nil {
		if n, _ := fmt.Sscanf(err.Error(), "unknown command %q", &name); n == 1 { // cobra asks no other function about it
			err = noCommand(root, name)
		}
	}
	return a.finish(errors.Join(err, a.close()))
}
