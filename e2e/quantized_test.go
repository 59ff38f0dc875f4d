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

// TestQuantized has the real vLLM make float8 of weights that arrive through a trainer's memory: what it serves then is
// what its own reload makes of them, in the memory that its CUDA graphs would read.
func TestQuantized(t *testing.T) {
	t.Parallel()
	root := repository(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, environmentPython(t, "vllm"), filepath.Join("testdata", "quantized.py"),
		filepath.Join(root, ".cache", "models", "smollm2-135m"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(root, "plugins", "vllm", "extension")+
		string(os.PathListSeparator)+filepath.Join(root, "sdk", "python", "src"),
		"HF_HUB_OFFLINE=1", "VLLM_LOGGING_LEVEL=ERROR", "VLLM_ALLOW_INSECURE_SERIALIZATION=1")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("compare: %v\n%s", err, said.String())
	}
	var found []struct {
		Path, Why                   string
		Parameters, Float8, Changed int
		Differ, Moved               []string
	}
	if err := json.Unmarshal(out, &found); err != nil || len(found) != 1 {
		t.Fatalf("%v in %q", err, out)
	}
	f := found[0]
	t.Logf("%+v", f)
	if f.Path != "direct" || f.Float8 == 0 || f.Changed != f.Parameters {
		t.Errorf("%+v; want every parameter changed, through the places of those in float8", f)
	}
	if len(f.Differ)+len(f.Moved) > 0 {
		t.Errorf("by memory other parameters than by vLLM's reload: %v; in other places: %v", f.Differ, f.Moved)
	}
}
