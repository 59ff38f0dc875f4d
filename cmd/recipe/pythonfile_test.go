package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
)

const wordsBlock = "environment.words.sevens"

// newWords is a workshop whose recipe trains on the environment of recipes/words.hcl, with further lines in its block.
func newWords(t *testing.T) *workshop {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not in PATH")
	}
	w := newWorkshop(t)
	for from, to := range map[string]string{"words.hcl": "quickstart.hcl", "environments/words.py": "words.py"} {
		text, err := os.ReadFile(filepath.Join(repository, "recipes", from))
		if err != nil {
			t.Fatal(err)
		}
		w.write(to, strings.NewReplacer("./environments/words.py", "./words.py", "steps         = 100",
			"steps         = 1000000").Replace(string(text)))
	}
	return w
}

func (w *workshop) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// workers are the Python processes of environments that work in this folder.
func (w *workshop) workers() []int {
	w.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		w.t.Skip("needs /proc")
	}
	here, err := filepath.EvalSymlinks(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		command, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.Contains(command, []byte("recipe_sdk.environment.serve")) {
			continue
		}
		if cwd, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd")); err == nil && cwd == here {
			found = append(found, pid)
		}
	}
	return found
}

// awaitWorker waits until there is one worker, which is none of those before.
func (w *workshop) awaitWorker(before ...int) int {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if now := w.workers(); len(now) == 1 && !slices.Contains(before, now[0]) {
			return now[0]
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("timed out after 1 minute waiting for one worker that is none of %v; there are %v\n%s", before,
				w.workers(), w.recipe("status", "-r", "quickstart.hcl"))
		}
	}
}

// TestAnEnvironmentInPythonSurvivesKills: kill -9 of the engine, of the plugin process and of the Python process.
func TestAnEnvironmentInPythonSurvivesKills(t *testing.T) {
	t.Parallel()
	w := newWords(t)
	w.recipe("apply", "-y", "--detach", "quickstart.hcl")
	before := w.awaitProcesses(5, nil)
	worker := w.awaitWorker()

	engine := state.Holder(state.DirOf(w.dir, "quickstart"))
	if engine == nil {
		t.Fatal("no engine is running on the run")
	}
	killed(t, engine.PID)
	w.recipe("apply", "-y", "--detach", "quickstart.hcl")
	if after := w.awaitProcesses(5, nil); after[wordsBlock] != before[wordsBlock] {
		t.Errorf("the environment went from process %d to %d when the engine was killed", before[wordsBlock],
			after[wordsBlock])
	}
	if now := w.workers(); !slices.Equal(now, []int{worker}) {
		t.Errorf("the workers are %v after the engine was killed, before that %d", now, worker)
	}

	killed(t, before[wordsBlock])
	second := w.awaitWorker(worker)
	after := w.awaitProcesses(5, func(now map[string]int) bool { return now[wordsBlock] != before[wordsBlock] })

	killed(t, second)
	w.awaitWorker(worker, second)
	w.awaitProcesses(5, func(now map[string]int) bool { return now[wordsBlock] != after[wordsBlock] })
	if logs := w.recipe("logs", "-r", "quickstart.hcl"); !strings.Contains(logs,
		"the environment's Python process has ended") {
		t.Errorf("the log does not say that the Python process has ended:\n%s", logs)
	}

	w.recipe("stop", "-r", "quickstart.hcl")
	for deadline := time.Now().Add(20 * time.Second); len(w.workers()) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("workers are left after the run was stopped: %v", w.workers())
		}
	}
}

func killed(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestACodeChangeIsInThePlan: the hash of the file is part of the block's record.
func TestACodeChangeIsInThePlan(t *testing.T) {
	t.Parallel()
	w := newWords(t)
	w.recipe("apply", "-y", "--detach", "quickstart.hcl")
	w.awaitProcesses(5, nil)
	first := w.awaitWorker()
	if plan := w.recipe("plan", "quickstart.hcl"); strings.Contains(plan, "plugin_source") {
		t.Errorf("a plan without a change names the source:\n%s", plan)
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "words.py"))
	if err != nil {
		t.Fatal(err)
	}
	w.write("words.py", string(text)+"\n# changed\n")
	plan := w.recipe("plan", "--trust", "all", "quickstart.hcl")
	if !strings.Contains(plan, "plugin_source") || !strings.Contains(plan, "words.py@sha256:") {
		t.Errorf("the plan does not name the changed source:\n%s", plan)
	}
	w.recipe("apply", "-y", "--detach", "quickstart.hcl")
	w.awaitWorker(first)
	for address, b := range w.record().Blocks {
		source := string(b.Config["plugin_source"])
		if has := address.String() == wordsBlock; has != strings.HasPrefix(source, `"words.py@sha256:`) {
			t.Errorf("the record of %s has the source %q", address, source)
		}
	}
	w.recipe("stop", "-r", "quickstart.hcl")
}
