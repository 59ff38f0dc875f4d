package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/engine/state"
)

// TestEveryBlockIsAProcessOfItsOwn: every block has its own process, other than the engine's, and the death of one
// environment does not affect the others.
func TestEveryBlockIsAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	path := filepath.Join(w.dir, "quickstart.hcl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	two := strings.Replace(string(text), "environments  = [environment.arithmetic.sums]",
		"environments  = [environment.arithmetic.sums, environment.arithmetic.more]", 1) +
		"\nenvironment \"arithmetic\" \"more\" {\n  inference  = inference.tiny.policy\n  group_size = local.group\n}\n"
	if err := os.WriteFile(path, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	w.recipe("apply", "-y", "--detach", "--var", "steps=1000000", "quickstart.hcl")
	before := w.awaitProcesses(6, nil)
	engine := state.Holder(state.DirOf(w.dir, "quickstart"))
	if engine == nil {
		t.Fatal("no engine is running on the run")
	}
	owners := map[int]string{engine.PID: "the engine"}
	for block, pid := range before {
		if other, taken := owners[pid]; taken {
			t.Errorf("%s lives in process %d, which is %s", block, pid, other)
		}
		owners[pid] = block
	}
	killed := "environment.arithmetic.more"
	if err := syscall.Kill(before[killed], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	after := w.awaitProcesses(6, func(now map[string]int) bool {
		return now[killed] != 0 &&
			now[killed] != before[killed]
	})
	for block, pid := range before {
		if block != killed && after[block] != pid {
			t.Errorf("%s went from process %d to %d when %s was killed", block, pid, after[block], killed)
		}
	}
}

// awaitProcesses waits until that many blocks have recorded a process and, unless it is nil, until more is true.
func (w *workshop) awaitProcesses(n int, more func(map[string]int) bool) map[string]int {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		found := map[string]int{}
		files, err := filepath.Glob(filepath.Join(w.dir, ".recipe", "quickstart", "blocks", "*", "reattach.json"))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, file := range files {
			var r struct {
				Block   string `json:"block"`
				Process struct {
					PID int `json:"pid"`
				} `json:"process"`
			}
			data, err := os.ReadFile(file)
			if err == nil && json.Unmarshal(data, &r) == nil {
				found[r.Block] = r.Process.PID
			}
		}
		if len(found) == n && (more == nil || more(found)) {
			return found
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("timed out after 2 minutes waiting for %d blocks with a process; there are %v", n, found)
		}
	}
}
