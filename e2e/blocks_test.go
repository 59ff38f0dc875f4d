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
func TestBlocks(t *testing.T) {
	t.Parallel()
	root, model := repository(t), t.TempDir()
	config := `{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024}`
	if err := os.WriteFile(filepath.Join(model, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	python := filepath.Join(root, ".cache", "venv-vllm", "bin", "python")
	cmd := exec.CommandContext(ctx, python, filepath.Join("testdata", "blocks.py"), model)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(root, "plugins", "vllm", "extension"),
		"HF_HUB_OFFLINE=1", "VLLM_LOGGING_LEVEL=ERROR")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("compare: %v\n%s", err, said.String())
	}
	var found []struct {
		Answered                                bool
		Steps, Slots, Asked, Preempted, Aborted int
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
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
