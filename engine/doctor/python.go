package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"

	enginepython "github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/engine/trust"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// Packages returns the Python packages of a block's plugin; none when its program is in another language.
type Packages func(*schema.Block) sdk.Packages

// blockPython is the Python of a block, as far as it is known without starting it.
type blockPython struct {
	path     string // of the interpreter
	packages sdk.Packages
	// made reports that `recipe init` created the environment.
	made bool
	// makeable reports that `recipe init` would create one and has not: path is then the python3 in PATH.
	makeable bool
	err      error // no interpreter
	// foreign is set where the recipe brings it.
	foreign *trust.Use
	// ask is how it is asked about its packages, and folders where these are; none: not without running them.
	ask, folders []string
}

// runtimeOf names which Python a block will run in; false when it needs none.
func runtimeOf(m Machine, r *schema.Recipe, b *schema.Block, packages Packages) (blockPython, bool) {
	if b.Meta.External != nil || elsewhere(b) {
		return blockPython{}, false
	}
	t := blockPython{packages: packages(b)}
	var asked sdk.Runtime
	if x := b.Meta.Runtime; x != nil {
		asked = *x
	}
	if t.packages.Empty() && len(asked.Requirements) == 0 && asked.Python == "" && asked.Venv == "" {
		return blockPython{}, false
	}
	prepared, managed, err := interpreter.Of(asked, t.packages, r.Dir)
	if err != nil {
		t.err = err
		return t, true
	}
	t.path, t.err = interpreter.Find(asked, t.packages, r.Dir, func(name string) string { return variable(m, b, name) })
	t.made = managed && prepared.Ready() && t.path == prepared.Executable()
	if use, foreign := enginepython.Foreign(b, t.path, r.Dir); t.err == nil && foreign {
		t.foreign = &use
	}
	if ask, folders, ok := enginepython.Quiet(b, t.path); ok {
		t.ask, t.folders = ask, folders
	}
	t.makeable = managed && !t.made && variable(m, b, "VIRTUAL_ENV") == ""
	return t, true
}

// elsewhere reports whether a block runs on another machine.
func elsewhere(b *schema.Block) bool {
	p := b.Meta.Placement
	return p != nil && (p.Executor != "" || p.Host != "")
}

// variable is an environment variable as the block will see it, as far as it is known.
func variable(m Machine, b *schema.Block, name string) string {
	if v, ok := b.Meta.Environment[name]; ok {
		v, _ = v.Unmark()
		if v.IsKnown() && !v.IsNull() && v.Type() == cty.String {
			return v.AsString()
		}
	}
	if value, set := m.LookupEnv(name); set {
		return value
	}
	return ""
}

// versionsProgram asks for the versions of distributions by their metadata: nothing is imported, which takes seconds
// for torch. Python looks for modules in the folder that it is started in first, which may be a stranger's checkout.
// The first argument is a JSON list of further folders of packages.
const versionsProgram = `
import sys
sys.path = [folder for folder in sys.path if folder]
import importlib.metadata as m, json
sys.path += json.loads(sys.argv[1])
found = {}
for name in sys.argv[2:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        found[name] = ""
print(json.dumps(found))`

// mayBeAsked reports whether the Python may be asked about its packages: for that, none of those that the recipe names
// is run.
func (t blockPython) mayBeAsked(m Machine) (Finding, bool) {
	if t.foreign == nil || len(t.folders) > 0 {
		return Finding{}, true
	}
	return m.allow(*t.foreign)
}

// versionsOf are the versions of distributions in a block's Python; "" for one that is missing.
func versionsOf(ctx context.Context, m Machine, t blockPython, names []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	folders, err := json.Marshal(append([]string{}, t.folders...))
	if err != nil {
		return nil, err
	}
	ask := t.ask
	if len(ask) == 0 { // it is trusted
		ask = []string{t.path}
	}
	out, err := m.Run(ctx, ask[0], slices.Concat(ask[1:], []string{"-c", versionsProgram, string(folders)}, names)...)
	if err != nil {
		return nil, errors.New(reason(ctx, err))
	}
	found := map[string]string{}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		return nil, fmt.Errorf("unexpected output %q", strings.TrimSpace(out))
	}
	return found, nil
}

// pythonOf is the finding about the Python of a block.
func pythonOf(ctx context.Context, m Machine, file string, t blockPython) Finding {
	initialize := "run recipe init " + file + ", which creates an environment with its packages"
	if t.err != nil {
		f := Finding{Verdict: Fail, Found: t.err.Error(), Remedy: initialize}
		var explained *sdk.Error
		if errors.As(t.err, &explained) && explained.Remedy != "" {
			f.Found, f.Remedy = explained.Summary, explained.Remedy
		}
		return f
	}
	if _, err := os.Stat(t.path); err != nil {
		return Finding{Verdict: Fail, Found: fmt.Sprintf("interpreter not found: %v", err),
			Remedy: initialize}
	}
	names := slices.Clone(t.packages.Needs)
	for _, other := range t.packages.Aliases {
		names = append(names, other)
	}
	if len(names) == 0 {
		return Finding{Verdict: OK, Found: t.path}
	}
	if f, ok := t.mayBeAsked(m); !ok {
		return f
	}
	found, err := versionsOf(ctx, m, t, names)
	if err != nil {
		return Finding{Verdict: Fail, Found: fmt.Sprintf("%s does not run: %v", t.path, err), Remedy: initialize}
	}
	var has, lacks, other []string
	for _, need := range t.packages.Needs {
		name, version := need, found[need]
		if alias := t.packages.Aliases[need]; version == "" && alias != "" {
			name, version = alias, found[alias]
		}
		if version == "" {
			lacks = append(lacks, need)
			continue
		}
		has = append(has, name+" "+version)
		if want := pinned(t.packages, name); want != "" && want != version {
			other = append(other, fmt.Sprintf("%s is %s; tested with %s", name, version, want))
		}
	}
	switch {
	case len(lacks) > 0 && t.makeable:
		return Finding{Verdict: Fail, Found: fmt.Sprintf("its Python environment does not exist, and %s has no %s",
			t.path, strings.Join(lacks, ", ")), Remedy: initialize}
	case len(lacks) > 0:
		return Finding{Verdict: Fail, Found: fmt.Sprintf("%s has no %s", t.path, strings.Join(lacks, ", ")),
			Remedy: "install it there, or remove runtime and " + initialize}
	case len(other) > 0 && !t.made:
		return Finding{Verdict: Warn, Found: strings.Join(other, "; ") + " (" + t.path + ")",
			Remedy: "it may work; else remove runtime and " + initialize}
	}
	return Finding{Verdict: OK, Found: strings.Join(has, ", ") + " in " + t.path}
}

// pinned is the version that a plugin's packages pin a distribution to; empty when they pin none.
func pinned(p sdk.Packages, name string) string {
	for _, r := range p.Requirements {
		if n, version, ok := strings.Cut(r, "=="); ok && n == name {
			return version
		}
	}
	return ""
}
