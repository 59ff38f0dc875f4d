package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	enginepython "github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// Agent is a program that a block names by the attribute agent.
type Agent interface {
	// Find returns the program that starts it, without running anything; python is the block's interpreter, or empty. The
	// error describes how a person installs it.
	Find(lookPath func(name string) (string, error), python string) (string, error)
	// Version asks the program.
	Version(ctx context.Context, program string, environ []string) (string, error)
	// Warning is what a person should know of a version; empty: nothing.
	Warning(version string) string
}

// agentNamed is the agent that a block names; false: it names none.
func (m Machine) agentNamed(b *schema.Block) (Agent, bool) {
	name := text(b, "agent")
	if name == "" || m.Agent == nil || b.Meta.External != nil || elsewhere(b) {
		return nil, false
	}
	return m.Agent(name)
}

// findAgent finds the program of an agent as the block will.
func findAgent(m Machine, b *schema.Block, a Agent, python string) (string, error) {
	return a.Find(func(name string) (string, error) {
		for _, dir := range filepath.SplitList(variable(m, b, "PATH")) {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(found) {
				return found, nil
			}
		}
		return "", exec.ErrNotFound
	}, python)
}

// agentPython is the interpreter of a block with an agent. A block that asks for no packages has one, too.
func agentPython(m Machine, r *schema.Recipe, b *schema.Block, t blockPython, known bool) blockPython {
	if known {
		return t
	}
	t = blockPython{}
	t.path, t.err = interpreter.Find(sdk.Runtime{}, sdk.Packages{}, r.Dir,
		func(name string) string { return variable(m, b, name) })
	if use, foreign := enginepython.Foreign(b, t.path, r.Dir); t.err == nil && foreign {
		t.foreign = &use
	}
	return t
}

// agentOf is the finding about the agent of a block. Its program is asked for its version.
func agentOf(ctx context.Context, m Machine, file string, r *schema.Recipe, b *schema.Block, a Agent, t blockPython,
) Finding {
	program, err := findAgent(m, b, a, t.path)
	if err != nil {
		return agentMissing(err, file, t)
	}
	if use, foreign := foreignAgent(m, r, b, program, t); foreign {
		if f, ok := m.allow(use); !ok {
			return f
		}
	}
	version, err := a.Version(ctx, program, interpreter.Asking(os.Environ()))
	var missing *sdk.Error
	switch {
	case errors.As(err, &missing):
		return agentMissing(err, file, t)
	case err != nil:
		return Finding{Verdict: Warn, Found: err.Error(), Remedy: "run it by hand: it must start without a terminal"}
	}
	if warning := a.Warning(version); warning != "" {
		return Finding{Verdict: Warn, Found: warning + " (" + program + ")",
			Remedy: "it may work; recipe env agents lists the versions that were tried"}
	}
	return Finding{Verdict: OK, Found: text(b, "agent") + " " + version + ", " + program}
}

// foreignAgent reports whether the recipe brings the program of an agent: it lies in the recipe's folder, beside an
// interpreter that the recipe names, or in a PATH that the block sets.
func foreignAgent(m Machine, r *schema.Recipe, b *schema.Block, program string, t blockPython) (trust.Use, bool) {
	besidePython := filepath.Dir(program) == filepath.Dir(t.path)
	if besidePython && t.foreign != nil {
		return *t.foreign, true
	}
	here, err := m.LookPath(filepath.Base(program))
	if !trust.Below(program, r.Dir) && (besidePython || err == nil && here == program) {
		return trust.Use{}, false
	}
	use := trust.Use{Path: program, Why: "asked for its version, as the agent of " + b.Addr.String()}
	use.Digest, _ = trust.OfFile(program) // one that cannot be read is not trusted
	return use, true
}

func agentMissing(err error, file string, t blockPython) Finding {
	f := Finding{Verdict: Fail, Found: err.Error()}
	var explained *sdk.Error
	if errors.As(err, &explained) {
		f.Found, f.Remedy = explained.Summary, explained.Remedy
	}
	if t.makeable { // it may be among the packages of an environment that is not there yet
		f.Remedy = strings.TrimPrefix(fmt.Sprintf("%s; then run recipe init %s", f.Remedy, file), "; then ")
	}
	return f
}
