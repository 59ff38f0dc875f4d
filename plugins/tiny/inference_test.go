package tiny

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// written is a checkpoint on disk whose weights depend on the version.
func written(t *testing.T, dir string, version int64) (string, *lm.Checkpoint) {
	t.Helper()
	c, err := Warm()
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Params.Flat() {
		c.Params.Flat()[i] *= 1 + 0.01*float32(version)
	}
	path := filepath.Join(dir, "policy.tiny")
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	return path, c
}

func TestInferenceComplies(t *testing.T) {
	plugintest.Compliance(t, Inference(), plugintest.Suite{
		Config: func(*testing.T) any { return InferenceConfig{Model: BuiltIn, MaxBatch: 16} },
		Weights: func(t *testing.T, dir string, version int64) sdk.Weights {
			path, _ := written(t, dir, version)
			return sdk.Weights{Version: version, Path: path, Format: format, Transport: "reload", Precision: "float32"}
		},
	})
}

// A new attempt serves the policy version of the run, not the model that the recipe names.
func TestInferenceComesBackWithTheRunsPolicy(t *testing.T) {
	t.Parallel()
	path, c := written(t, t.TempDir(), 4)
	b := plugintest.Harness(t, Inference())
	b.Start(InferenceConfig{Model: BuiltIn, MaxBatch: 16}, func(r *pluginpb.StartRequest) {
		r.Policy = &pluginpb.Policy{Version: 4, Weights: path, Format: format}
	})
	b.Ready()
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	tokens := []int{20, 21, 22}
	list, err := g.Logprobs(t.Context(), tokens)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	want, err := logProbs(c.Params, tokens)
	if err != nil {
		t.Fatal(err)
	}
	if got := list[0].Logprobs; len(got) != 3 || got[1] != want[0] || got[2] != want[1] {
		t.Errorf("log-probabilities %v, want 0 and %v", got, want)
	}
}

func TestInferenceFailsClearly(t *testing.T) {
	t.Parallel()
	foreign := filepath.Join(t.TempDir(), "model.safetensors")
	if err := os.WriteFile(foreign, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{"missing.tiny": "no such file", foreign: "not a checkpoint"} {
		b := plugintest.Harness(t, Inference())
		b.Start(InferenceConfig{Model: model, MaxBatch: 16})
		if message := b.WaitPhase(sdk.Failed); !strings.Contains(message, want) {
			t.Errorf("model %s: failed with %q, want it to say %q", model, message, want)
		}
	}
}
