package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// buildPlugin builds a main package of this repository.
func buildPlugin(t *testing.T, pkg, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as recipe is built, whose packages are compiled already
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// command runs one command line in this process.
func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	// No settings of the person who runs the test.
	environ := append(os.Environ(), "RECIPE_CONFIG="+filepath.Join(t.TempDir(), "none.hcl"))
	if err := os.WriteFile(strings.TrimPrefix(environ[len(environ)-1], "RECIPE_CONFIG="), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code = execute(t.Context(), newApp(strings.NewReader(""), &stdout, &stderr, environ), args)
	return code, stdout.String(), stderr.String()
}

// recipeOf writes a recipe that uses a plugin by its path.
func recipeOf(t *testing.T, name, path, body string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.hcl")
	text := "recipe {\n  required_plugins {\n    " + name + " = { source = \"" + path + "\" }\n  }\n}\n" + body
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

type checksJSON struct {
	OK             bool
	Passed, Failed int
	Checks         []struct {
		Name, Result string
		Output       []string
	}
}

func TestPluginTestFindsNothingWrongWithTheExample(t *testing.T) {
	t.Parallel()
	path := buildPlugin(t, "github.com/recipe-rl/recipe/sdk/environment/example", "reverse")
	words := filepath.Join(t.TempDir(), "words")
	if err := os.WriteFile(words, []byte("one\ntwo\nthree\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := recipeOf(t, "reverse", path, `
inference "tiny" "policy" {}
environment "reverse" "words" {
  inference  = inference.tiny.policy
  words      = "`+words+`"
  max_tokens = 8
}
trainer "tiny" "policy" { environments = [environment.reverse.words] }
`)
	junit := filepath.Join(t.TempDir(), "junit.xml")
	code, out, errs := command(t, "plugin", "test", path, "-r", file, "--junit", junit)
	if code != 0 || !strings.Contains(out, "pass  groups") || !strings.Contains(out, `environment "reverse" complies`) {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	data, err := os.ReadFile(junit)
	if err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Cases    []struct{} `xml:"testcase"`
	}
	if err := xml.Unmarshal(data, &suite); err != nil || suite.Tests < 10 || suite.Failures != 0 ||
		len(suite.Cases) != suite.Tests {
		t.Errorf("the JUnit report says %+v (%v)\n%s", suite, err, data)
	}
	for args, want := range map[string]string{
		"plugin list -r " + file:                       "reverse",
		"plugin docs environment reverse -r " + file:   "one word a line",
		"plugin schema environment reverse -r " + file: `"words"`,
	} {
		if code, out, errs := command(t, strings.Fields(args)...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("recipe %s: exit code %d, want %q\n%s%s", args, code, want, out, errs)
		}
	}
	// Without the recipe it says what it lacks.
	if code, _, errs := command(t, "plugin", "test", path); code != 1 || !strings.Contains(errs, "[words]") ||
		!strings.Contains(errs, "-r FILE") {
		t.Errorf("without a recipe: exit code %d\n%s", code, errs)
	}
}

func TestPluginTestFindsMistakes(t *testing.T) {
	t.Parallel()
	path := buildPlugin(t, "./testdata/plugins/broken", "broken")
	code, out, errs := command(t, "plugin", "test", path, "--json", "--run", "describe|^ready$|stop leaves nothing")
	if code != 1 {
		t.Fatalf("exit code %d, want 1\n%s%s", code, out, errs)
	}
	var report checksJSON
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	results := map[string]string{}
	for _, c := range report.Checks {
		results[c.Name] = c.Result + " " + strings.Join(c.Output, "; ")
	}
	for name, want := range map[string]string{
		"describe":                  "fail attribute letters has no doc",
		"ready":                     "pass ",
		"stop leaves nothing/block": "fail it failed when it was stopped: it was asked to stop and calls that a failure",
	} {
		if results[name] != want {
			t.Errorf("%s: %q, want %q", name, results[name], want)
		}
	}
	if report.OK || report.Failed != 2 {
		t.Errorf("ok: %v, failed: %d, want false and 2", report.OK, report.Failed)
	}
}

func TestPluginTestOfSomethingElse(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(text, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/bin/true":    "ask for its description: start /bin/true: ",
		"/no/bin/such": "build it, if it is a Go program (go build -o bin/such ., in /no), or correct its path",
		t.TempDir():    "name the program, not its folder",
		text:           "build it for this machine",
		"train.hcl":    "name the recipe by -r: recipe plugin test PATH -r train.hcl",
	} {
		if code, _, errs := command(t, "plugin", "test", path); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, want %q\n%s", path, code, want, errs)
		}
	}
}

// TestPluginTestOfNothing names which checks and blocks there are.
func TestPluginTestOfNothing(t *testing.T) {
	t.Parallel()
	path := buildPlugin(t, "../../sdk/environment/example", "reverse")
	recipe := recipeOf(t, "reverse", path, `inference "tiny" "policy" {}
environment "reverse" "words" {
  inference = inference.tiny.policy
  words     = "nowhere.txt"
}
`)
	for want, flags := range map[string][]string{
		`no check of a plugin of kind environment matches --run "nosuch"`: {"--run", "nosuch"},
		"let --block be one of its blocks: environment.reverse.words":     {"--block", "environment.reverse.other"},
	} {
		args := append([]string{"plugin", "test", path, "-r", recipe}, flags...)
		if code, _, errs := command(t, args...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, want %q\n%s", flags, code, want, errs)
		}
	}
	// A check that fails shows what the plugin says to do.
	const remedy = "What to do: set words to a file with one word a line"
	if code, out, _ := command(t, "plugin", "test", path, "-r", recipe, "--run", "^ready$"); code != 1 ||
		!strings.Contains(strings.Join(strings.Fields(out), " "), remedy) {
		t.Errorf("a failed check: exit code %d, want %q\n%s", code, remedy, out)
	}
}
