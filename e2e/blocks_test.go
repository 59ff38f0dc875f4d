//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBlocks holds recipe_blocks.py to the code of vLLM that it was read in: its scheduler, real but without a model,
// schedules the same steps and leaves the same cache with it and without.
//
//docs:survival.md the interface of environments changes, and their packages are not installed
func TestBlocks(t *testing.T) {
	t.Parallel()
	var found []struct {
		Answered                                bool
		Steps, Slots, Asked, Preempted, Aborted int
	}
	onSchedulers(t, "blocks.py", &found)
	if len(found) != 2 { // with and without a prefix cache
		t.Fatalf("compared %d caches; want 2", len(found))
	}
	for _, f := range found {
		t.Logf("%+v", f)
		if !f.Answered || f.Slots == 0 || f.Preempted == 0 || f.Aborted == 0 {
			t.Errorf("compared %+v; want answers, preempted and aborted sequences among them", f)
		}
		if 4*f.Asked > f.Slots {
			t.Errorf("vLLM's cache was asked for %d of %d slots; want a quarter at most", f.Asked, f.Slots)
		}
	}
}

// TestSteps holds recipe_steps.py to the code of vLLM that it was read in: with it and without, its scheduler schedules
// the same steps, knows the same after each, and tells front ends the same tokens, log-probabilities and endings.
//
//docs:vllm.md Front ends
func TestSteps(t *testing.T) {
	t.Parallel()
	var found []struct {
		Answered                                             bool
		Steps, Tokens, Preempted, Aborted, LookedAt, Stopped int
	}
	onSchedulers(t, "steps.py", &found)
	if len(found) != 3 { // with and without a prefix cache, and one step after the other
		t.Fatalf("compared %d schedulers; want 3", len(found))
	}
	for _, f := range found {
		t.Logf("%+v", f)
		if !f.Answered || f.Tokens == 0 || f.Preempted == 0 || f.Aborted == 0 || f.Stopped == 0 {
			t.Errorf("compared %+v; want passes, preempted, aborted and stopped sequences among them", f)
		}
		if 2*f.LookedAt > f.Tokens {
			t.Errorf("vLLM read %d of %d tokens; want half at most", f.LookedAt, f.Tokens)
		}
	}
}

// onSchedulers runs a program of testdata that compares schedulers of the real vLLM for a small model, and decodes what
// it writes.
func onSchedulers(t *testing.T, program string, found any) {
	t.Helper()
	model := t.TempDir()
	config := `{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024}`
	if err := os.WriteFile(filepath.Join(model, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	besideVLLM(t, program, model, found)
}

// besideVLLM runs a program of testdata in vLLM's environment, with recipe's extension of it, and decodes what it
// writes.
func besideVLLM(t *testing.T, program, model string, found any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	root := repository(t)
	cmd := exec.CommandContext(ctx, environmentPython(t, "vllm"), filepath.Join("testdata", program), model)
	path := []string{filepath.Join(root, "plugins", "vllm", "extension"), filepath.Join(root, "sdk", "python", "src")}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+strings.Join(path, string(os.PathListSeparator)),
		"HF_HUB_OFFLINE=1", "VLLM_LOGGING_LEVEL=ERROR", "VLLM_ALLOW_INSECURE_SERIALIZATION=1")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, said.String())
	}
	if err := json.Unmarshal(out, found); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
}
