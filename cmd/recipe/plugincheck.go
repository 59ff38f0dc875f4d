package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/outfile"
	"github.com/recipe-rl/recipe/internal/temporary"
	"github.com/recipe-rl/recipe/sdk"
)

// checkFlags are the flags of plugin test.
type checkFlags struct {
	file, block string
	run         string
	junit       string
	json        bool
	vars        recipeFlags
}

func newPluginTest(a *app) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "test PATH",
		Short: "Run the compliance suite on a plugin",
		Long: `Run the compliance suite on the plugin at PATH, a program in any language: it is started as the engine does
it, and driven over the plugin protocol. The suite checks that the description is complete, that planning has no side
effects, that the block becomes ready, that events have no gap, that a stop leaves nothing behind, that bad
configurations are refused with a reason, and what its kind must do.

The blocks that the plugin refers to are there: inference answers with a tiny model, the trajectory API takes groups
and has batches, a trainer publishes weights. The other attributes have their defaults, or the values of the block in
the recipe that --recipe names, which is needed for attributes without a default.

Exit code 0: all checks passed or were skipped; 1: one failed, or the suite could not run.`,
		Example: "  recipe plugin test bin/words -r words.hcl\n" +
			"  recipe plugin test bin/words -r words.hcl --junit report.xml",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.checkPlugin(cmd.Context(), args[0], &f)
		},
	}
	cmd.Flags().StringVarP(&f.file, "recipe", "r", "", "take the block's attributes from this recipe `FILE`")
	_ = cmd.MarkFlagFilename("recipe", "hcl")
	cmd.Flags().StringVar(&f.block, "block", "", "the block at `ADDRESS`, where the recipe has several of the plugin")
	cmd.Flags().StringVar(&f.run, "run", "", "only the checks whose name matches this `REGEXP`")
	cmd.Flags().StringVar(&f.junit, "junit", "", "also write the result as JUnit XML into this `FILE`")
	f.vars.add(cmd)
	addJSON(cmd, &f.json)
	return cmd
}

// checkTimeout bounds the suite. Each of its waits is bounded, too: this is for a plugin that reaches many of these
// bounds.
const checkTimeout = 30 * time.Minute

// checkPlugin runs the suite in a process of its own: it is a Go test, whose report this one reads.
func (a *app) checkPlugin(ctx context.Context, path string, f *checkFlags) error {
	if err := f.vars.trust.into(a, f.file); err != nil {
		return err
	}
	p, err := a.pluginAt(path, f.file)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// What a check leaves when it is killed lies in this folder. Sockets need a short path.
	scratch, remove, err := temporary.Dir("", "recipe-test")
	if err != nil {
		return err
	}
	defer func() { _ = remove() }()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	child := exec.CommandContext(ctx, self, complianceCommand, path)
	child.Args[0] = "recipe"
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) }
	child.WaitDelay = time.Minute
	child.Env = append(a.environ, "TMPDIR="+scratch,
		trustVariable+"="+a.variable(trustVariable)+" "+strings.Join(f.vars.trust.words, " "))
	request, err := f.encode()
	if err != nil {
		return err
	}
	child.Stdin = strings.NewReader(request)
	var said strings.Builder
	child.Stderr = &said
	out, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the compliance suite: %w", err)
	}
	report := view.NewChecks(p.Kind, p.Name, p.Version, path)
	if !f.json {
		report.Live(a.out, a.style())
	}
	readErr := readChecks(out, report)
	ended := child.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if report.Len() == 0 && f.run != "" && ended == nil {
		return &sdk.Error{Summary: fmt.Sprintf("no check of a plugin of kind %s matches --run %q", p.Kind, f.run),
			Remedy: "leave --run out to see the names of all checks"}
	}
	if report.Len() == 0 && said.Len() > 0 { // it could not begin, and has said why
		return errors.New(strings.TrimSpace(strings.TrimPrefix(said.String(), "Error: ")))
	}
	if report.Len() == 0 {
		return errors.Join(errors.New("no check ran"), readErr)
	}
	report.End(ended != nil, said.String())
	return a.showChecks(ctx, report, f)
}

// showChecks writes the report in the forms that were asked for.
func (a *app) showChecks(ctx context.Context, report *view.Checks, f *checkFlags) error {
	var err error
	if f.json {
		err = view.JSON(a.out, report)
	} else {
		err = report.Summary(a.out, a.style())
	}
	if f.junit != "" {
		data, failed := report.JUnit()
		if failed == nil {
			failed = outfile.Write(ctx, f.junit, data, 0o644)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("write the JUnit report: %w", failed))
		}
	}
	if err == nil && report.Failed() {
		return exitError(exitFailed)
	}
	return err
}

// readChecks reads the output of go test -v. Nothing else prints there: what plugins print goes to their logs.
func readChecks(r io.Reader, report *view.Checks) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			readCheck(strings.TrimSuffix(line, "\n"), report)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the report of the compliance suite: %w", err)
		}
	}
}

func readCheck(line string, report *view.Checks) {
	words := strings.Fields(line)
	if len(words) >= 3 && words[0] == "===" {
		name := strings.TrimSpace(line[strings.Index(line, words[1])+len(words[1]):])
		report.At(checkName(name), words[1] == "RUN")
		return
	}
	if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "--- ") {
		result, rest, ok := strings.Cut(strings.TrimPrefix(trimmed, "--- "), ": ")
		name, took, timed := cutLast(rest, " (")
		if ok && timed {
			seconds, _ := time.ParseDuration(strings.TrimSuffix(took, ")"))
			report.Result(checkName(name), result, seconds)
			return
		}
	}
	if line == "PASS" || line == "FAIL" || strings.HasPrefix(line, "exit status") {
		return
	}
	report.Say(line)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// checkName is a test's name without that of the suite; empty: the suite itself.
func checkName(test string) string {
	_, name, _ := strings.Cut(test, "/")
	return strings.ReplaceAll(name, "_", " ")
}
