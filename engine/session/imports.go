package session

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/engine/python"
	"github.com/recipe-rl/recipe/internal/regular"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// lookup prints what is wrong with the syntax of the Python code on its standard input, and which modules an
// interpreter does not find. It compiles the code and does not run it, and it imports none of the modules. The first
// argument is a JSON list of folders of the recipe, which are searched too. A stranger may have written what they hold,
// so they are added after the program has imported what it needs itself. The working folder is not searched.
const lookup = `
import sys
sys.path = [folder for folder in sys.path if folder]
import importlib.util, json
wrong, line = "", 0
try:
    compile(sys.stdin.buffer.read(), "code", "exec", dont_inherit=True)
except SyntaxError as e:
    wrong, line = f"{type(e).__name__}: {e.msg}", e.lineno or 0
except Exception:
    pass
sys.path = json.loads(sys.argv[1]) + sys.path
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return True
absent = [name for name in sys.argv[2:] if not found(name)]
print(json.dumps({"absent": absent, "wrong": wrong, "line": line}))`

const (
	lookupLimit  = 10 * time.Second // how long an interpreter may take to answer
	compileLimit = 1 << 20          // bytes of a file whose syntax is checked
)

// lookedUp is what lookup prints.
type lookedUp struct {
	Absent []string
	Wrong  string // a mistake in the syntax
	Line   int
}

// CheckCode reports what makes blocks of a recipe fail that name functions in Python files, as a plan does, for recipe
// validate. Blocks in whose bodies there are other mistakes are left out.
func CheckCode(c *host.Catalog, r *schema.Recipe) (diags hcl.Diagnostics) {
	for _, b := range r.Blocks {
		if b.Value == cty.NilVal || c.Definition(b.Addr.Kind, b.Plugin()) == nil {
			continue
		}
		for _, p := range unusable(c, b, r.Dir) {
			report := diagnostic.Problem
			if p.Warning {
				report = diagnostic.Warning
			}
			diags = append(diags, report(b.Range, "Code not usable",
				fmt.Sprintf("%s: %s: %s. %s", b.Addr, spec.PathString(p.Path), p.Summary, p.Detail)))
		}
	}
	return diags
}

// unusable finds what makes a block fail that names functions in Python files (rewards, losses, estimators): mistakes
// in the syntax of a file, and modules that it needs and that the block's Python lacks. No code of the recipe runs for
// it, and no interpreter that the recipe brings.
func unusable(c *host.Catalog, b *schema.Block, dir string) []spec.Problem {
	code := codeOf(b)
	if len(code) == 0 || b.Meta.External != nil {
		return nil
	}
	packages := c.Packages(b.Addr.Kind, b.Plugin(), interpreter.GPU())
	path := python.Find(b, packages, dir)
	if path == "" {
		return nil
	}
	ask, folders, quiet := python.Quiet(b, path)
	if _, foreign := python.Foreign(b, path, dir); !quiet || foreign && !python.NamesPackages(b, path) {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil
	}
	var problems []spec.Problem
	for _, used := range code {
		file := used.code.File
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		source, err := regular.FollowFile(file, 16<<20)
		if err != nil {
			continue
		}
		found, err := lookUp(ask, folders, filepath.Dir(file), source, b)
		switch {
		case err != nil: // the block reports it
		case found.Wrong != "":
			problems = append(problems, notPython(b, used, path, found))
		case len(found.Absent) > 0:
			problems = append(problems, notInstalled(b, packages, used, path, found.Absent))
		}
	}
	return problems
}

// notPython is the problem of a file that does not compile. It is a warning where recipe init may bring another Python.
func notPython(b *schema.Block, used usedCode, program string, found lookedUp) spec.Problem {
	r := b.Meta.Runtime
	return spec.Problem{Path: cty.GetAttrPath(used.attribute),
		Warning: !ofInit(program) && r != nil && len(r.Requirements) > 0 && r.Python == "" && r.Venv == "",
		Summary: fmt.Sprintf("%s:%d: %s", used.code.File, found.Line, found.Wrong),
		Detail:  fmt.Sprintf("%s cannot compile it. Correct line %d of %s.", program, found.Line, used.code.File)}
}

// ofInit reports whether recipe init has made the environment of an interpreter.
func ofInit(program string) bool {
	return filepath.Dir(filepath.Dir(filepath.Dir(program))) == interpreter.Cache()
}

// notInstalled is the problem of modules that are missing. Without the environment of recipe init it is a warning: the
// modules may come with it.
func notInstalled(b *schema.Block, packages sdk.Packages, used usedCode, program string,
	lacking []string) spec.Problem {
	needs, file := packages.Requirements, filepath.Base(used.code.File)
	made := ofInit(program)
	fixed := made
	if r := b.Meta.Runtime; r != nil {
		fixed = fixed || r.Python != "" || r.Venv != ""
		if len(r.Requirements) > 0 {
			needs = r.Requirements
		}
	}
	quoted := make([]string, 0, len(needs)+len(lacking))
	for _, n := range append(slices.Clone(needs), lacking...) {
		quoted = append(quoted, fmt.Sprintf("%q", n))
	}
	remedy := fmt.Sprintf("Name its package in the block, as runtime { requirements = [%s] } if it has the module's "+
		"name, and run recipe init", strings.Join(quoted, ", "))
	if fixed && !made {
		remedy = "Install it there, or name its package in the block: runtime { requirements = […] }, without python and " +
			"venv"
	}
	is := "is"
	if len(lacking) > 1 {
		is = "are"
	}
	return spec.Problem{Path: cty.GetAttrPath(used.attribute), Warning: !fixed,
		Summary: fmt.Sprintf("%s imports %s, which %s not installed", file, strings.Join(lacking, " and "), is),
		Detail:  fmt.Sprintf("%s does not find it. %s. A module of yours belongs beside %s.", program, remedy, file)}
}

// BringsCode reports whether a block runs functions or packages that the recipe chooses.
func BringsCode(b *schema.Block) bool {
	return len(codeOf(b)) > 0 || b.Meta.Runtime != nil && len(b.Meta.Runtime.Requirements) > 0
}

// usedCode is a Python file that an attribute or nested block names.
type usedCode struct {
	attribute string
	code      spec.Code
}

// codeOf are the Python files that a block names, each once. The language has added their digests.
func codeOf(b *schema.Block) (found []usedCode) {
	seen := map[string]bool{}
	plain, _ := b.Value.UnmarkDeep()
	_ = cty.Walk(plain, func(path cty.Path, v cty.Value) (bool, error) { // the function returns no error
		if v.IsNull() || !v.IsKnown() || v.Type() != cty.String || len(path) == 0 {
			return true, nil
		}
		first, ok := path[0].(cty.GetAttrStep)
		if code, err := spec.ParseCode(v.AsString()); ok && err == nil && code.Digest != "" && !seen[code.File] {
			seen[code.File] = true
			found = append(found, usedCode{first.Name, code})
		}
		return true, nil
	})
	return found
}

// lookUp asks an interpreter for the syntax of a file in folder, and for the modules that it does not find. The
// PYTHONPATH of the block is searched, and not given to Python: it would run a sitecustomize.py of the recipe, and its
// modules in place of its own. Packages are further folders of the interpreter's.
func lookUp(ask, packages []string, folder string, source []byte, b *schema.Block) (found lookedUp, err error) {
	program := ask[0]
	names := slices.DeleteFunc(spec.Imports(source), func(name string) bool { // recipe brings these
		return name == "recipe_sdk" || name == "recipe_"+b.Plugin()
	})
	folders := append(slices.Clone(packages), folder)
	if v, ok := b.Meta.Environment["PYTHONPATH"]; ok {
		v, _ = v.Unmark()
		if v.IsKnown() && !v.IsNull() && v.Type() == cty.String {
			folders = append(folders, filepath.SplitList(v.AsString())...)
		} else {
			names = nil // where they may be is not known
		}
	}
	searched, err := json.Marshal(folders)
	if err != nil {
		return found, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupLimit)
	defer cancel()
	args := slices.Concat(ask[1:], []string{"-W", "ignore", "-c", lookup, string(searched)}, names)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Dir(program)
	cmd.Env = append(interpreter.Asking(os.Environ()), "PYTHONDONTWRITEBYTECODE=1")
	cmd.WaitDelay = time.Second
	if len(source) <= compileLimit {
		cmd.Stdin = bytes.NewReader(source)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		return found, fmt.Errorf("ask %s for modules: %w", program, err)
	}
	if err := json.Unmarshal(out.Bytes(), &found); err != nil {
		return found, fmt.Errorf("ask %s for modules: unexpected output %q", program, out.String())
	}
	return found, nil
}
