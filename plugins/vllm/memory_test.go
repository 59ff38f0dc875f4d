package vllm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
)

// TestOutOfMemorySaysWhatToLower: after each failure for lack of memory the remedy names settings to change, and every
// one that it names is an attribute of the block.
func TestOutOfMemorySaysWhatToLower(t *testing.T) {
	t.Parallel()
	schema := Plugin().Schema
	for name, want := range map[string][]string{
		"oom": {"gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "enforce_eager",
			"tensor_parallel_size"},
		"kv-cache": {"max_model_len", "gpu_memory_utilization", "tensor_parallel_size", "kv_cache_dtype"},
		"occupied": {"gpu_memory_utilization"},
	} {
		log, err := os.ReadFile(filepath.Join("testdata", "log", name+".text.log"))
		if err != nil {
			t.Fatal(err)
		}
		var e *sdk.Error
		if err := diagnosis().Explain(errors.New("exit status 1"), string(log), false); !errors.As(err, &e) {
			t.Fatalf("%s: no diagnosis: %v", name, err)
		}
		if !strings.Contains(e.Remedy, "lower") {
			t.Errorf("%s: the remedy says nothing to lower: %s", name, e.Remedy)
		}
		for _, attribute := range want {
			if !strings.Contains(e.Remedy, attribute) {
				t.Errorf("%s: the remedy does not name %s: %s", name, attribute, e.Remedy)
			}
			if schema.Attribute(attribute) == nil {
				t.Errorf("%s: the remedy names %s, which is no attribute of the block", name, attribute)
			}
		}
	}
}
