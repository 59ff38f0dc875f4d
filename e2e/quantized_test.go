//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"
)

// TestQuantized has the real vLLM make float8 of weights that arrive through a trainer's memory: what it serves then is
// what its own reload makes of them, in the memory that its CUDA graphs would read.
//
//docs:vllm.md Layers in float8
func TestQuantized(t *testing.T) {
	t.Parallel()
	var found []struct {
		Path, Why                   string
		Parameters, Float8, Changed int
		Differ, Moved               []string
		Layers                      int
		Classes                     map[string][]string // where they differ
	}
	besideVLLM(t, "quantized.py", filepath.Join(repository(t), ".cache", "models", "smollm2-135m"), &found)
	if len(found) != 1 {
		t.Fatalf("compared in %d processes; want 1", len(found))
	}
	f := found[0]
	t.Logf("%+v", f)
	if f.Path != "direct" || f.Float8 == 0 || f.Changed != f.Parameters {
		t.Errorf("%+v; want every parameter changed, through the places of those in float8", f)
	}
	if f.Layers == 0 || len(f.Classes) > 0 {
		t.Errorf("of %d layers these get weights of another class than by vLLM's reload: %v", f.Layers, f.Classes)
	}
	if len(f.Differ)+len(f.Moved) > 0 {
		t.Errorf("by memory other parameters than by vLLM's reload: %v; in other places: %v", f.Differ, f.Moved)
	}
}
