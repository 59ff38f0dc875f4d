package main

import (
	"reflect"
	"testing"

	"github.com/recipe-rl/recipe/engine/host"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// vLLM and the trainer exchange tensors through memory: `recipe init` puts both into one environment, with one version
// of torch.
func TestInferenceAndTrainerShareAnEnvironment(t *testing.T) {
	t.Parallel()
	catalog, err := host.NewCatalog(builtins(), nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, gpu := range []bool{true, false} {
		server, trainer := catalog.Packages(kind.Inference, "vllm", gpu), catalog.Packages(kind.Trainer, "grpo", gpu)
		server.Needs, trainer.Needs = nil, nil // packages that each needs to start
		if server.Empty() || !reflect.DeepEqual(server, trainer) {
			t.Errorf("gpu %v: vllm needs %+v, grpo %+v; want the same", gpu, server, trainer)
		}
	}
	if reflect.DeepEqual(catalog.Packages(kind.Inference, "vllm", true),
		catalog.Packages(kind.Inference, "vllm", false)) {
		t.Error("a machine without a GPU gets the same vLLM as one with")
	}
	if p := catalog.Packages(kind.Trainer, "tiny", false); !p.Empty() {
		t.Errorf("a plugin without Python needs %+v", p)
	}
}
