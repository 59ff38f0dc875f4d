package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/recipe-rl/recipe/cmd/recipe/view"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/sdk"
)

// trustVariable is RECIPE_TRUST: what --trust takes, separated by spaces or commas.
const trustVariable = "RECIPE_TRUST"

// trustFlags are the flags of a command that may run what a recipe names.
type trustFlags struct {
	words []string
	lock  string
}

func (f *trustFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.words, "trust", nil,
		"let run what the recipe's folder brings: the `DIGEST` (sha256:…) of a program, or all; repeatable; for this command")
	cmd.Flags().StringVar(&f.lock, "trust-lock", "",
		"trust the digests in this `FILE`, which recipe trust lock wrote; it must lie outside of the checkout")
}

// into adds what the flags say to the gate. file is the recipe, whose checkout cannot vouch for itself.
func (f *trustFlags) into(a *app, file string) error {
	words := f.words
	if f.lock != "" {
		if root := checkoutOf(file); trust.Below(f.lock, root) {
			return &sdk.Error{Summary: fmt.Sprintf("--trust-lock %s lies in the checkout of the recipe, %s", f.lock, root),
				Remedy: "name a file from elsewhere, such as the one of the base branch: a change of the checkout could change " +
					"this one"}
		}
		digests, err := trust.ReadLock(f.lock)
		if err != nil {
			return err
		}
		words = slices.Concat(words, digests)
	}
	for _, w := range words {
		if !trust.Check(w) {
			return &sdk.Error{Summary: fmt.Sprintf("--trust %q: expected all, or a digest", w),
				Remedy: "a digest is sha256: and 64 hexadecimal digits, as recipe validate and recipe trust digest FILE print it"}
		}
	}
	a.gate().Trust(words...)
	return nil
}

// checkoutOf is the folder of the checkout that a file lies in: the nearest one above it with a .git, else its own.
func checkoutOf(file string) string {
	own, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return filepath.Dir(file)
	}
	if real, err := filepath.EvalSymlinks(own); err == nil {
		own = real
	}
	for dir := own; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return own
		}
	}
}

// newGate is the gate of a process: what this user has approved, and RECIPE_TRUST. It asks where a person is there.
func (a *app) newGate() *trust.Gate {
	g := &trust.Gate{Store: trust.Default(a.environ), Folders: !a.inCI()}
	for _, w := range strings.FieldsFunc(a.variable(trustVariable), func(r rune) bool { return r == ' ' || r == ',' }) {
		if trust.Check(w) {
			g.Trust(w)
		}
	}
	if a.canAsk() {
		g.Ask = a.askTrust
	}
	return g
}

// inCI reports whether this runs in a CI system, where a checkout is a stranger's.
func (a *app) inCI() bool {
	for _, name := range []string{"CI", "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "JENKINS_URL", "TEAMCITY_VERSION",
		"TF_BUILD"} {
		if v := a.variable(name); v != "" && v != "false" && v != "0" {
			return true
		}
	}
	return false
}

// canAsk reports whether a person reads what is asked and can answer.
func (a *app) canAsk() bool {
	in, reads := a.in.(*os.File)
	_, shows := view.TerminalOf(a.err)
	return reads && shows && !a.json && !a.inCI() && term.IsTerminal(int(in.Fd()))
}

// askTrust asks the person at the terminal about one program. No answer is no.
func (a *app) askTrust(u trust.Use) (trust.Answer, error) {
	s := a.errStyle()
	at := u.Path
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, u.Path); err == nil && filepath.IsLocal(rel) {
			at = "./" + rel
		}
	}
	fmt.Fprintf(a.err, "\n%s\n", s.Bold(fmt.Sprintf("This recipe wants %q to be %s.", at, u.Why)))
	if u.Digest != "" {
		fmt.Fprintf(a.err, "  %s\n", u.Digest)
	}
	for i, f := range u.Files {
		if i == 8 {
			fmt.Fprintf(a.err, "  and %d more files\n", len(u.Files)-i)
			break
		}
		fmt.Fprintf(a.err, "  with %q\n", f)
	}
	fmt.Fprint(a.err, "It runs with your rights. Allow? \"yes\" remembers this content, \"once\" does not, anything "+
		"else is no: ")
	answer, err := a.readAnswer(a.ended)
	fmt.Fprintln(a.err)
	switch {
	case err != nil: // no answer is none
		return trust.No, err
	case answer == "yes" && u.Digest != "":
		return trust.Always, nil
	case answer == "yes" || answer == "once":
		return trust.Once, nil
	}
	return trust.No, nil
}

// sealed makes a gate that neither asks nor takes what was approved before: for tools that promise to run nothing.
func (a *app) sealed() {
	own := a.gate
	a.gate = sync.OnceValue(func() *trust.Gate {
		g := own()
		g.Sealed, g.Ask = true, nil
		return g
	})
}

// unasked makes a gate that does not ask: standard input is a protocol.
func (a *app) unasked() { a.gate().Ask = nil }

// tellRuns has each program that the recipe brings named before it runs.
func (a *app) tellRuns() {
	if a.json {
		return
	}
	said, s := false, a.errStyle()
	a.gate().Tell = func(u trust.Use) {
		if !said {
			fmt.Fprintln(a.err, s.Bold("The recipe brings programs, which run with your rights:"))
		}
		said = true
		fmt.Fprintf(a.err, "  %q %s\n", u.Path, s.Dim(u.Digest))
	}
}
