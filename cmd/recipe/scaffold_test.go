package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/cmd/recipe/scaffold"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// author is a person who works in a folder: with the program, and with Go.
type author struct {
	t       *testing.T
	dir     string
	environ []string
}

func newAuthor(t *testing.T) *author {
	t.Helper()
	dir := t.TempDir()
	settings := filepath.Join(dir, "settings.hcl")
	if err := os.WriteFile(settings, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return &author{t, dir, append(os.Environ(), "RECIPE_CONFIG="+settings, "GOFLAGS=-mod=mod", "GOWORK=off", "NO_COLOR=1")}
}

// run runs a command line and returns what it printed; a failure ends the test.
func (a *author) run(dir string, words ...string) string {
	a.t.Helper()
	out, err := a.try(dir, words...)
	if err != nil {
		a.t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return out
}

func (a *author) try(dir string, words ...string) (string, error) {
	a.t.Helper()
	program := words[0]
	if program == "recipe" {
		self, err := os.Executable()
		if err != nil {
			a.t.Fatal(err)
		}
		program = self
	}
	cmd := exec.CommandContext(a.t.Context(), program, words[1:]...)
	cmd.Args[0], cmd.Dir, cmd.Env = words[0], dir, a.environ
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// create makes a plugin that uses the SDK of this repository.
func (a *author) create(k kind.Kind, name, language string) string {
	a.t.Helper()
	root, err := filepath.Abs(repository)
	if err != nil {
		a.t.Fatal(err)
	}
	a.run(a.dir, "recipe", "plugin", "new", string(k), name, "--lang", language, "--sdk", root)
	folder := filepath.Join(a.dir, name)
	// The checksums that go mod tidy would ask for are those of this repository.
	if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
		sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
		if err != nil {
			a.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "go.sum"), sums, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return folder
}

// Every scaffold does what its README says: it builds, passes its tests and the compliance suite, and trains.
func TestScaffoldsBuildComplyAndTrain(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds and trains every scaffold")
	}
	for _, c := range []struct {
		kind     kind.Kind
		language string
		steps    int
		rises    bool // the reward of training does
	}{
		{kind.Environment, "go", 40, true},
		{kind.Environment, "python", 40, true},
		{kind.Inference, "go", 8, false},
		{kind.Trainer, "go", 8, false},
		{kind.Sync, "go", 8, false},
		{kind.Trajectories, "go", 8, false},
	} {
		t.Run(string(c.kind)+" "+c.language, func(t *testing.T) {
			t.Parallel()
			a := newAuthor(t)
			name := "my-" + string(c.kind)
			folder := a.create(c.kind, name, c.language)
			path := filepath.Join(folder, "bin", name)
			if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
				if out := a.run(folder, "gofmt", "-l", "."); out != "" {
					t.Errorf("gofmt would change %s", out)
				}
				a.run(folder, "go", "build", "-o", path, ".")
				a.run(folder, "go", "vet", "./...")
				a.run(folder, "go", "test", "./...")
			} else {
				path = filepath.Join(folder, strings.ReplaceAll(name, "-", "_")+".py")
				a.pytest(folder)
			}
			file := name + ".hcl"
			a.run(folder, "recipe", "fmt", "--check", file)
			a.run(folder, "recipe", "validate", file)
			report := a.run(folder, "recipe", "plugin", "test", path, "-r", file)
			if !strings.Contains(report, "complies") {
				t.Errorf("the compliance suite says\n%s", report)
			}
			out := a.run(folder, "recipe", "apply", "--auto-approve", "--var", fmt.Sprintf("steps=%d", c.steps), file)
			if !strings.Contains(out, fmt.Sprintf("step-%08d.tiny", c.steps)) {
				t.Errorf("it did not train %d steps:\n%s", c.steps, out)
			}
			if c.rises {
				a.rises(out)
			}
		})
	}
}

// A trainer in Python trains a random model with real PyTorch. Its recipe serves with vLLM, which is more than a test
// of every machine can do: it is validated.
func TestThePythonTrainerScaffoldTrains(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("trains with PyTorch")
	}
	python, err := filepath.Abs(filepath.Join(repository, ".cache", "venv-test", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Skip("no .cache/venv-test; scripts/test-python.sh --prepare makes it")
	}
	a := newAuthor(t)
	folder := a.create(kind.Trainer, "my-trainer", "python")
	a.environ = append(a.environ, "PYTHON="+python, "PLUGINTEST_DEADLINE=10m") // PyTorch beside other tests
	a.run(folder, "go", "build", "-o", filepath.Join(folder, "bin", "my-trainer"), ".")
	a.run(folder, "go", "vet", "./...")
	if out := a.run(folder, "go", "test", "-v", "-run", "TestItTrains", "./..."); !strings.Contains(out,
		"--- PASS: TestItTrains") {
		t.Errorf("its test did not run:\n%s", out)
	}
	a.run(folder, "recipe", "validate", "my-trainer.hcl")
}

// rises checks that the reward of the last steps is well above that of the first.
func (a *author) rises(out string) {
	a.t.Helper()
	m := regexp.MustCompile(`(?m)^trainer\.\S+: reward ([0-9.e-]+) → ([0-9.e-]+) over`).FindStringSubmatch(out)
	if m == nil {
		a.t.Fatalf("the summary names no reward:\n%s", out)
	}
	first, _ := strconv.ParseFloat(m[1], 64)
	last, _ := strconv.ParseFloat(m[2], 64)
	if last < first+0.15 {
		a.t.Errorf("the reward went from %.3f to %.3f; it is to rise by 0.15 at least", first, last)
	}
}

// pytest runs the tests of a Python plugin, where the environment for tests is there.
func (a *author) pytest(folder string) {
	a.t.Helper()
	root, err := filepath.Abs(repository)
	if err != nil {
		a.t.Fatal(err)
	}
	python := filepath.Join(root, ".cache", "venv-test", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		a.t.Log("no .cache/venv-test, so the plugin's pytest is not run; scripts/test-python.sh --prepare makes it")
		return
	}
	cmd := exec.CommandContext(a.t.Context(), python, "-m", "pytest", "-q", "-p", "no:cacheprovider")
	cmd.Dir = folder
	cmd.Env = append(a.environ, "PYTHONPATH="+filepath.Join(root, "sdk", "python", "src"))
	if out, err := cmd.CombinedOutput(); err != nil {
		a.t.Errorf("pytest: %v\n%s", err, out)
	}
}

func TestPluginNewOverwritesNothingAndChecksNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "words")
	if code, out, errs := command(t, "plugin", "new", "environment", "words", "--dir", target); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	main := filepath.Join(target, "main.go")
	if err := os.WriteFile(main, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"environment words --dir " + target, "has these files already"},
		{"environment words --lang python --dir " + target, "README.md"},
		{"environment Words", `the name "Words" cannot be that of a plugin`},
		{"environment ../words", "cannot be that of a plugin"},
		{"environment test", `the name "test" is reserved`},
		{"environmen words", "is not a kind of block"},
		{"environment words --lang rust", "cannot be written in rust"},
		{"sync words --lang python", "use --lang go"},
		{"environment words --sdk " + dir, "are not recipe's sources"},
	} {
		code, _, errs := command(t, append([]string{"plugin", "new"}, strings.Fields(c.args)...)...)
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d, want %q\n%s", c.args, code, c.want, errs)
		}
	}
	if content, err := os.ReadFile(main); err != nil || string(content) != "mine" {
		t.Errorf("main.go was overwritten: %q, %v", content, err)
	}
	if _, err := os.Stat("Words"); err == nil {
		t.Error("a refused plugin has a folder")
	}
}

func TestEveryKindHasAScaffold(t *testing.T) {
	t.Parallel()
	for _, k := range kind.All() {
		if k.Life() != kind.Config && len(scaffold.Languages(k)) == 0 {
			t.Errorf("recipe plugin new knows no %s plugin", k)
		}
	}
}

// An environment of the example's plugin is tried and evaluated without a trainer, by three kinds of policies.
func TestEnvironmentsAreTriedAndEvaluatedWithoutATrainer(t *testing.T) {
	t.Parallel()
	a := newAuthor(t)
	folder := a.create(kind.Environment, "words", "python") // nothing to build
	out := a.run(folder, "recipe", "env", "try", "words.hcl", "environment.words.train", "-n", "2", "--group-size", "4",
		"--json")
	var tried struct {
		Policy string
		Groups []struct {
			Completions []struct {
				Score, Advantage float64
				Tokens           int
				Messages         []struct{ Role, Content string }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &tried); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(tried.Groups) != 2 || tried.Policy != "inference.tiny.policy" {
		t.Fatalf("%d groups of %s, want 2 of inference.tiny.policy", len(tried.Groups), tried.Policy)
	}
	for _, g := range tried.Groups {
		if len(g.Completions) != 4 {
			t.Fatalf("a group of %d completions, want 4", len(g.Completions))
		}
		sum := 0.0
		for _, c := range g.Completions {
			sum += c.Advantage
			if len(c.Messages) != 2 || c.Messages[1].Role != "assistant" || c.Tokens == 0 {
				t.Errorf("completion %+v", c)
			}
		}
		if sum > 1e-6 || sum < -1e-6 {
			t.Errorf("the advantages of a group add up to %v, want 0", sum)
		}
	}
	a.evaluates(folder)
	a.triesByURL(folder)
	for args, want := range map[string]string{
		"env try words.hcl environment.words.other":                                 "it has environment.words.train",
		"env try words.hcl inference.tiny.policy":                                   "expected an environment",
		"env try words.hcl environment.words.train -n 0":                            "-n must be",
		"env try words.hcl environment.words.train --policy x":                      "expected tiny, the address",
		"env try words.hcl environment.words.train --policy http://127.0.0.1:1":     "connection refused",
		"env try words.hcl environment.words.train --policy http://x --key-env NOT": "this variable is not set",
		"evaluate environment.words.train --k 3":                                    "--k needs --samples",
		"evaluate environment.words.train --samples 2 --k 3":                        "pass@k needs 1 to 2",
	} {
		if out, err := a.try(folder, append([]string{"recipe"}, strings.Fields(args)...)...); err == nil ||
			!strings.Contains(out, want) {
			t.Errorf("recipe %s: %v, want %q\n%s", args, err, want, out)
		}
	}
}

// evaluates checks that pass@k is estimated and that what is missing is continued.
func (a *author) evaluates(folder string) {
	a.t.Helper()
	evaluate := func(more ...string) (report struct {
		Tasks  int
		PassAt []struct {
			K               int
			Mean, Low, High float64
		} `json:"pass_at"`
		Results []struct {
			Task   int
			Scores []float64
		}
	}) {
		a.t.Helper()
		out := a.run(folder, append([]string{"recipe", "evaluate", "environment.words.train", "-r", "words.hcl",
			"--samples", "4", "--pass", "0.5", "--out", "scores.jsonl", "--json"}, more...)...)
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			a.t.Fatalf("%v\n%s", err, out)
		}
		return report
	}
	part := evaluate("--limit", "3")
	if part.Tasks != 3 || len(part.Results) != 3 {
		a.t.Fatalf("%d tasks, want 3", part.Tasks)
	}
	whole := evaluate()
	if whole.Tasks != 9 || len(whole.PassAt) != 2 || whole.PassAt[1].K != 4 {
		a.t.Fatalf("%+v, want 9 tasks and pass@1, pass@4", whole)
	}
	for _, p := range whole.PassAt {
		if !(0 <= p.Low && p.Low <= p.Mean && p.Mean <= p.High && p.High <= 1) || p.Low == p.High {
			a.t.Errorf("pass@%d: %+v", p.K, p)
		}
	}
	for i, r := range part.Results { // kept, not sampled again
		if fmt.Sprint(whole.Results[i].Scores) != fmt.Sprint(r.Scores) {
			a.t.Errorf("task %d: %v, and %v before", r.Task, whole.Results[i].Scores, r.Scores)
		}
	}
}

// triesByURL has a server answer that knows no token ids, refuses what it does not know, and gives one completion
// whatever n says, as some services do.
func (a *author) triesByURL(folder string) {
	a.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q map[string]any
		refuse := func(text string) {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": text})
		}
		switch {
		case r.Header.Get("Authorization") != "Bearer secret-key":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/v1/models":
			_, _ = w.Write([]byte(`{"data":[{"id":"wise"}]}`))
		case json.NewDecoder(r.Body).Decode(&q) != nil || r.URL.Path != "/v1/chat/completions" || q["model"] != "wise":
			refuse("unexpected request")
		case q["return_token_ids"] != nil:
			refuse("unknown parameter return_token_ids")
		case q["max_tokens"] != nil:
			refuse("use max_completion_tokens instead")
		default:
			_, _ = w.Write([]byte(`{"choices":[{"message":{"role":"assistant","content":"21"},"finish_reason":"stop"}]}`))
		}
	}))
	defer server.Close()
	a.environ = append(a.environ, "WISE_KEY=secret-key")
	out := a.run(folder, "recipe", "env", "try", "words.hcl", "environment.words.train", "-n", "1", "--group-size", "3",
		"--policy", server.URL, "--key-env", "WISE_KEY")
	if strings.Count(out, "  21\n") != 3 || !strings.Contains(out, "(wise)") || strings.Contains(out, "secret-key") {
		a.t.Errorf("want three answers of wise, and no key:\n%s", out)
	}
	// The held-out tasks are 19, 29, …: only 12 reversed would be 21.
	out = a.run(folder, "recipe", "evaluate", "environment.words.train", "-r", "words.hcl", "--samples", "2", "--policy",
		server.URL, "--key-env", "WISE_KEY")
	if !strings.Contains(out, "pass@1  0.000") || !strings.Contains(out, "9 tasks, 2 completions each") {
		a.t.Errorf("it says\n%s", out)
	}
	if out, err := a.try(folder, "recipe", "env", "try", "words.hcl", "environment.words.train", "--policy",
		server.URL); err == nil || !strings.Contains(out, "HTTP 401") || !strings.Contains(out, "--key-env") {
		a.t.Errorf("without the key: %v\n%s", err, out)
	}
}
