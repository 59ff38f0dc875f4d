package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/agent/taskfolder"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/script/scripttest"
)

// validate runs ValidateTasks on task folders below a folder.
func validate(t *testing.T, dir, tasks, python string) []Verdict {
	t.Helper()
	state := t.TempDir()
	out, err := ValidateTasks(t.Context(), Validation{Body: cty.ObjectVal(map[string]cty.Value{
		"tasks": cty.StringVal(tasks)}), Block: sdk.Block{Environment: map[string]string{"GIVEN": "given"}}, Python: python,
		RecipeDir: dir, Dir: state, Environ: os.Environ(), Log: func(string, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(state, "rollouts", running, "*")); len(left) > 0 {
		t.Errorf("folders %q are left", left)
	}
	return out
}

// The solution of a task scores, doing nothing does not, and each scores the same twice.
//
//docs:environments/harbor.md env validate finds tasks whose tests cannot be trusted
func TestTasksAreValidated(t *testing.T) {
	t.Parallel()
	needsSandbox(t)
	python := scripttest.Python(t, "atropos")
	const solves = "echo 1 >/app/answer\n"
	for name, c := range map[string]struct {
		tests, solution string
		more            map[string]string
		wrong           []string
	}{
		"right": {tests: "cp answer /logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt", solution: solves},
		"no use": {tests: "apt-get; echo 0 >/logs/verifier/reward.txt; echo no root >&2", solution: solves,
			wrong: []string{"the solution gets 0; expected more than 0; the tests' last lines: "}},
		"a metric for each line": {tests: `i=0; while [ $i -lt 65 ]; do m="$m, \"line$i\": 1"; i=$((i+1)); done; ` +
			`echo "{\"reward\": $(cat answer || echo 0)$m}" >/logs/verifier/reward.json`, solution: solves,
			wrong: []string{"the solution gets no reward: one score has 65 metrics", "an agent that does nothing gets no"}},
		"too easy": {tests: "echo 0.5 >/logs/verifier/reward.txt", solution: solves,
			wrong: []string{"an agent that does nothing gets 0.5; expected 0 or less"}},
		"at random": {tests: "test -e answer && od -An -tu4 -N4 /dev/urandom >/logs/verifier/reward.txt || " +
			"echo 0 >/logs/verifier/reward.txt", solution: solves, wrong: []string{"the tests draw at random"}},
		"no reward": {tests: "cp answer /logs/verifier/reward.txt", solution: solves,
			wrong: []string{"an agent that does nothing gets no reward: the tests have written neither"}},
		"no solution": {tests: "true", wrong: []string{"solution/solve.sh: it is not there"}},
		"not read": {tests: "true", solution: solves, more: map[string]string{"task.toml": "[environment]\ngpus = 1\n"},
			wrong: []string{"task.toml:2: environment.gpus is set"}},
		"a solution without end": {tests: "echo 1 >/logs/verifier/reward.txt", solution: "sleep 300\n",
			more: map[string]string{"task.toml": "[agent]\ntimeout_sec = 1\n"},
			wrong: []string{"the solution gets no reward: the solution had not ended after 1s",
				"an agent that does nothing gets 1"}},
		"its variables": {tests: "test \"$A$S$(cat b)\" = givens && echo 1 >/logs/verifier/reward.txt || " +
			"echo 0 >/logs/verifier/reward.txt", solution: "echo \"$S$A\" >b\n",
			more: map[string]string{"task.toml": "[verifier.env]\nA = \"${GIVEN}\"\n[solution.env]\nS = \"s\"\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"tests/test.sh": c.tests, "solution/solve.sh": c.solution}
			maps.Copy(files, c.more)
			dir := taskFolder(t, "", files)
			if c.solution == "" {
				if err := os.Remove(filepath.Join(dir, "tasks/one/solution/solve.sh")); err != nil {
					t.Fatal(err)
				}
			}
			v := validate(t, dir, "tasks", python)[0]
			ok := len(v.Wrong) == len(c.wrong) && v.Folder == "tasks/one"
			for i := range min(len(v.Wrong), len(c.wrong)) {
				ok = ok && strings.Contains(v.Wrong[i], c.wrong[i])
			}
			if !ok {
				t.Errorf("%+v, want %q", v, c.wrong)
			}
		})
	}
}

// The tasks of recipes/environments/harbor, and others by what their tests write, have the rewards that Harbor's own
// package gives them.
//
//docs:environments/harbor.md rewards are those of Harbor's own package
func TestRewardsAreHarbors(t *testing.T) {
	t.Parallel()
	needsSandbox(t)
	python := os.Getenv("HARBOR_PYTHON")
	if python == "" {
		python = scripttest.Python(t, "harbor")
	}
	dir := t.TempDir()
	for name, tests := range map[string]string{
		"text":        "echo ' 0.25 ' >/logs/verifier/reward.txt; exit 7",
		"both":        "echo 1 >/logs/verifier/reward.txt; echo '{\"reward\": 0.5, \"b\": 1}' >/logs/verifier/reward.json",
		"bad-first":   "echo 1 >/logs/verifier/reward.txt; echo '{' >/logs/verifier/reward.json",
		"none":        "true",
		"empty":       ": >/logs/verifier/reward.txt",
		"words":       "echo good >/logs/verifier/reward.txt",
		"nan":         "echo nan >/logs/verifier/reward.txt",
		"infinite":    "echo '{\"reward\": 1e999}' >/logs/verifier/reward.json",
		"true":        "echo '{\"reward\": true}' >/logs/verifier/reward.json",
		"quoted":      "echo '{\"reward\": \"1\"}' >/logs/verifier/reward.json",
		"null":        "echo '{\"reward\": null}' >/logs/verifier/reward.json",
		"bare":        "echo 1 >/logs/verifier/reward.json",
		"solved":      "cp /app/answer /logs/verifier/reward.txt || echo -1 >/logs/verifier/reward.txt",
		"elsewhere":   "test ! -e given.txt && cp answer /logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt",
		"interpreter": "#!/usr/bin/python3\nopen('/logs/verifier/reward.txt', 'w').write('0.75')",
	} {
		files := solved()
		files["tests/test.sh"], files["solution/solve.sh"] = tests, "echo 1 >/app/answer\n"
		files["task.toml"] = "[task]\nname = \"tests/" + name + "\"\n[environment]\nnetwork_mode = \"no-network\"\n"
		files["environment/Dockerfile"] = "FROM scratch\nWORKDIR /app\nCOPY given.txt ./\n"
		if name == "elsewhere" {
			files["task.toml"] = "artifacts = [\"/app/answer\"]\n" + files["task.toml"] +
				"[verifier]\nenvironment_mode = \"separate\"\n"
			files["tests/Dockerfile"] = "FROM scratch\nWORKDIR /app\nCOPY . /tests/\n"
		}
		for file, text := range files {
			path := filepath.Join(dir, "made", name, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	recipes, err := filepath.Abs("../../recipes/environments/harbor")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]Verdict{}
	for _, tasks := range []string{filepath.Join(dir, "made"), filepath.Join(recipes, "tasks"),
		filepath.Join(recipes, "digits")} {
		for _, v := range validate(t, dir, tasks, python) {
			ours[filepath.Clean(v.Folder)] = v
		}
	}
	folders := slices.Sorted(maps.Keys(ours))
	cmd := exec.CommandContext(t.Context(), python, slices.Concat([]string{"testdata/harbor_trials.py", t.TempDir()},
		folders)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH=testdata", "PYTHONDONTWRITEBYTECODE=1", "HOME="+t.TempDir())
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	seen := 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); seen++ {
		var theirs struct {
			Folder      string
			Oracle, Nop map[string]float64
		}
		// Python's booleans are numbers; JSON's are none for Go.
		line := strings.ReplaceAll(lines.Text(), ": true", ": 1")
		if err := json.Unmarshal([]byte(line), &theirs); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		v := ours[theirs.Folder]
		for who, c := range map[string]struct {
			ours   []Outcome
			theirs map[string]float64
		}{"the solution": {v.Solution, theirs.Oracle}, "nothing": {v.Nothing, theirs.Nop}} {
			if len(c.ours) == 0 {
				t.Errorf("%s, %s: not tried: %q", theirs.Folder, who, v.Wrong)
				continue
			}
			if c.theirs == nil {
				if c.ours[0].Score != nil {
					t.Errorf("%s, %s: we give %v, Harbor none", theirs.Folder, who, *c.ours[0].Score)
				}
				continue
			}
			want, _, err := taskfolder.Score(c.theirs)
			if err != nil || c.ours[0].Score == nil || *c.ours[0].Score != want {
				t.Errorf("%s, %s: %+v, Harbor gives %v (%v)", theirs.Folder, who, c.ours[0], c.theirs, err)
			}
		}
	}
	if seen != len(folders) {
		t.Errorf("Harbor has run %d tasks, want %d: %s", seen, len(folders), said.String())
	}
}
