package main

import (
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Caches of compiled code survive a run only if their folders reach the programs that use them.
func TestThePlacesOfCompileCachesReachThePrograms(t *testing.T) {
	t.Parallel()
	catalog, err := host.NewCatalog(builtins(), nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	common := []string{"HOME=/h", "XDG_CACHE_HOME=/c", "TORCHINDUCTOR_CACHE_DIR=/i", "TRITON_CACHE_DIR=/t",
		"CUDA_CACHE_PATH=/n"}
	vllm := []string{"VLLM_CACHE_ROOT=/v", "FLASHINFER_WORKSPACE_BASE=/f", "DG_JIT_CACHE_DIR=/d"}
	for _, c := range []struct {
		kind kind.Kind
		name string
		want []string
	}{
		{kind.Inference, "vllm", slices.Concat(common, vllm)},
		{kind.Trainer, "grpo", common},
	} {
		got := catalog.Environment(c.kind, c.name, cty.NilVal, slices.Concat(common, vllm))
		for _, entry := range c.want {
			if !slices.Contains(got, entry) {
				t.Errorf("%s %q does not get %s", c.kind, c.name, entry)
			}
		}
	}
}
