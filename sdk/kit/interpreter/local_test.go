package interpreter_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/interpreter"
)

// files writes files below a folder, by name.
func files(t *testing.T, dir string, all map[string]string) {
	t.Helper()
	for name, text := range all {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func of(t *testing.T, dir string, requirements ...string) string {
	t.Helper()
	e, _ := environmentOf(t, sdk.Runtime{Requirements: requirements}, sdk.Packages{}, dir)
	return e.Dir
}

// The same path in two recipes means two packages, and one package has one identity however its path is written.
func TestPathsCountFromTheRecipe(t *testing.T) {
	t.Parallel()
	one, two := t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		files(t, dir, map[string]string{"mypkg/pyproject.toml": "[project]\n", "mypkg/mypkg/__init__.py": "",
			"pkg.whl": "wheel", "pyproject.toml": "[project]\n"})
	}
	for _, r := range []string{"./mypkg", "mypkg/", "./mypkg[all]", ".", "-e .", "--editable ./mypkg", "file:mypkg",
		"mypkg @ ./mypkg", "pkg.whl", `./mypkg ; python_version > "3"`} {
		first, again := of(t, one, r), of(t, one, r)
		if first == of(t, two, r) {
			t.Errorf("%q of two recipes is one environment", r)
		}
		if first != again {
			t.Errorf("%q of one recipe is two environments", r)
		}
	}
	for _, r := range []string{"torch==2.0", "mypkg", "a[b]>=1; python_version > '3'", "git+https://host/x.git@main",
		"x @ https://host/x.whl", "-e git+ssh://git@host/x"} {
		if of(t, one, r) != of(t, two, r) {
			t.Errorf("%q is the same everywhere, and got two environments", r)
		}
	}
	absolute := "file://" + filepath.ToSlash(one) + "/mypkg"
	if of(t, one, absolute) != of(t, two, absolute) {
		t.Error("an absolute path in two recipes is two environments")
	}
	e := func(dir string) string {
		e, _ := environmentOf(t, sdk.Runtime{Python: "venv/bin/python", Requirements: []string{"x"}}, sdk.Packages{},
			dir)
		return e.Dir
	}
	if e(one) == e(two) {
		t.Error("relative interpreters of two recipes make one environment")
	}
}

// A change of an installed folder is noticed, and other changes are not.
func TestAChangedPackageIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file              string
		changes, editable bool // whether it counts for ./p and for -e ./p
	}{
		"a module":               {"p/mypkg/reward.py", true, false},
		"a new module":           {"p/mypkg/new.py", true, false},
		"a deeper one":           {"p/src/deep/er/code.py", true, false},
		"data beside modules":    {"p/mypkg/prompts/a.json", true, false},
		"a kernel":               {"p/csrc/kernel.cu", true, false},
		"a module at the top":    {"p/single.py", true, false},
		"the project":            {"p/pyproject.toml", true, true},
		"the history":            {"p/.git/index", false, false},
		"compiled files":         {"p/mypkg/__pycache__/reward.pyc", false, false},
		"a build":                {"p/build/lib/mypkg/reward.py", false, false},
		"what a build writes":    {"p/src/mypkg.egg-info/PKG-INFO", false, false},
		"a virtual environment":  {"p/venv/lib/x/y.py", false, false},
		"outputs of a run":       {"p/wandb/run-1/log.txt", false, false},
		"the run directory":      {"p/.recipe/r/run.json", false, false},
		"a recipe in the folder": {"p/r.hcl", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			files(t, dir, map[string]string{
				"p/pyproject.toml": "[project]\n", "p/mypkg/__init__.py": "", "p/mypkg/reward.py": "1",
				"p/src/deep/er/__init__.py": "",
				"p/venv/pyvenv.cfg":         "",
			})
			plain, editable := of(t, dir, "./p"), of(t, dir, "-e ./p")
			files(t, dir, map[string]string{c.file: "changed"})
			if got := of(t, dir, "./p") != plain; got != c.changes {
				t.Errorf("./p is another environment: %v, want %v", got, c.changes)
			}
			if got := of(t, dir, "-e ./p") != editable; got != c.editable {
				t.Errorf("-e ./p is another environment: %v, want %v", got, c.editable)
			}
		})
	}
	dir := t.TempDir()
	files(t, dir, map[string]string{"p.whl": "one"})
	before := of(t, dir, "p.whl")
	files(t, dir, map[string]string{"p.whl": "two"})
	if of(t, dir, "p.whl") == before {
		t.Error("another wheel of the same name is not noticed")
	}
}

func TestRequirementsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files(t, dir, map[string]string{"empty/readme": ""})
	for requirement, want := range map[string]string{
		"./none":               "none",
		"-e ./empty":           "no pyproject.toml and no setup.py",
		"./empty":              "no pyproject.toml and no setup.py",
		"x.whl":                "x.whl",
		"-r requirements.txt":  `the option "-r requirements.txt"`,
		"--index-url=http://x": "the option",
		"file://there/x.whl":   "another machine, there",
	} {
		_, _, err := interpreter.Of(sdk.Runtime{Requirements: []string{"torch", requirement}}, sdk.Packages{}, dir)
		var reported *sdk.Error
		if !errors.As(err, &reported) || !strings.Contains(reported.Summary, want) || reported.Remedy == "" {
			t.Errorf("%q: got %v (%+v), want an error about %q with a remedy", requirement, err, reported, want)
		}
		if _, err := interpreter.Find(sdk.Runtime{Requirements: []string{requirement}}, sdk.Packages{}, dir,
			os.Getenv); err == nil {
			t.Errorf("%q: found", requirement)
		}
	}
}

func TestPackagesOfAPluginComeFromAnIndex(t *testing.T) {
	t.Parallel()
	for requirement, ok := range map[string]bool{
		"torch": true, "torch==2.13.0 --hash=sha256:ab": true, `torch[cuda]>=2 ; python_version < "3.13"`: true,
		"mine @ https://example.com/mine-1.0-py3-none-any.whl": true,
		"./mine": false, "-e ./mine": false, "/mine": false, "mine @ file:///mine": false, "mine.whl": false,
		"--index-url=https://example.com": false, "torch\n--index-url=https://example.com": false,
	} {
		if err := interpreter.CheckIndexed(requirement); (err == nil) != ok {
			t.Errorf("%q: %v", requirement, err)
		}
	}
}
