//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAServedReference compares the log-probabilities from a real vLLM with the log-probabilities of a second
// copy of the same model in the trainer, in float32.
//
//docs:distillation.md a served reference and a copy in the trainer give the same log-probabilities
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

// TestDistillation runs recipes/distill.hcl: a student without two of its layers learns from the whole model, which
// a second vLLM serves, without rewards. On held-out prompts its reverse KL falls.
//
//docs:distillation.md the reverse KL on held-out prompts falls
func TestDistillation(t *testing.T) {
	t.Parallel()
	student, teacher, python := t.TempDir(), smolLM2(t), environmentPython(t, "vllm")
	r := newRun(t, "distill.hcl", map[string]string{"student": student, "teacher": teacher})
	r.trainer = "trainer.grpo.student"
	folder := filepath.Join(r.dir, "environments", "distill")
	runPython(t, python, filepath.Join(folder, "student.py"), teacher, student)
	r.apply()
	if err := r.wait(60 * time.Minute); err != nil {
		t.Fatalf("apply: %v\n%s", err, r.story())
	}
	checkpoints := r.all(func(e event) bool { return e.Type == "checkpoint" && e.Address == r.trainer })
	if len(checkpoints) == 0 {
		t.Fatal("no checkpoint was written")
	}
	out := runPython(t, python, filepath.Join(folder, "reverse_kl.py"), filepath.Join(folder, "prompts.jsonl"), "16",
		teacher, student, checkpoints[len(checkpoints)-1].Path)
	var found []struct {
		ReverseKL float64 `json:"reverse_kl"`
		Tokens    int
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found) != 2 {
		t.Fatalf("%v in %q", err, out)
	}
	t.Logf("reverse KL on held-out prompts: %+v", found)
	if before, after := found[0].ReverseKL, found[1].ReverseKL; after > 0.9*before || before <= 0 {
		t.Errorf("reverse KL on held-out prompts: %.3f before, %.3f after; want at most 0.9 of it", before, after)
	}
}

// runPython runs a program and returns the last line that it prints.
func runPython(t *testing.T, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "OMP_NUM_THREADS=1")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", argv[1:], err, said.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
