//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAServedReference compares the log-probabilities that the trainer gets from a real vLLM with those of a second
// copy of the same model in the trainer, in float32.
//
//docs:distillation.md the log-probabilities of a served reference are those of a copy in the trainer
func TestAServedReference(t *testing.T) {
	t.Parallel()
	const key = "a key of the test"
	root, address := repository(t), startVLLM(t, smolLM2(t), key)
	cmd := exec.CommandContext(t.Context(), environmentPython(t, "vllm"), filepath.Join("testdata", "teacher.py"),
		smolLM2(t), "http://"+address+"/v1", key)
	path := []string{filepath.Join(root, "plugins", "grpo"), filepath.Join(root, "sdk", "python", "src")}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+strings.Join(path, string(os.PathListSeparator)), "HF_HUB_OFFLINE=1")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("teacher.py: %v\n%s", err, said.String())
	}
	var found struct {
		Tokens, Copies            int
		Difference, Mean, Shifted float64
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &found); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	t.Logf("%+v", found)
	if found.Tokens < 50 || found.Copies != 0 || found.Difference > 1e-3 || found.Shifted < 1 {
		t.Errorf("%+v; want a difference of at most 1e-3, and no copy in the trainer", found)
	}
}
