//go:build e2e

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/grpo"
	weights "github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// torchPython is an interpreter with PyTorch, made by scripts/test-python.sh or scripts/venv.sh.
func torchPython(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"test", "vllm", "torch"} {
		path := environmentPython(t, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	t.Skip("no .cache/venv-test or .cache/venv-vllm; scripts/test-python.sh and scripts/venv.sh vllm make them")
	return ""
}

// tinyLlama writes a random model of two layers.
func tinyLlama(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	workertest.Llama(t, dir, 128)
	return dir
}

// scored is a group that the worker can train on, or one without anything to train.
func scored(seed int, useful bool) *trajectory.Group {
	g := &trajectory.Group{}
	for i := range 4 {
		tokens, masks, logprobs := []int{1, 5, 9}, []int{-100, -100, -100}, []float64{1, 1, 1}
		for j := range 4 {
			id := 3 + (seed*31+i*7+j*13)%57
			mask := id
			if !useful {
				mask = -100
			}
			tokens, masks, logprobs = append(tokens, id), append(masks, mask), append(logprobs, -4.1)
		}
		g.Tokens, g.Masks, g.InferenceLogprobs = append(g.Tokens, tokens), append(g.Masks, masks),
			append(g.InferenceLogprobs, logprobs)
		g.Scores = append(g.Scores, float64((seed+i)%3))
	}
	return g
}

// TestTheRealWorkerTakesTurns runs PyTorch's worker against a server that sleeps: it asks for a turn before each batch,
// and a batch without a step ends its turn. Where nobody sleeps it asks once and never again.
func TestTheRealWorkerTakesTurns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts PyTorch twice")
	}
	python := torchPython(t)
	model := tinyLlama(t)
	for name, c := range map[string]struct {
		sleeps  bool
		batches []bool // whether each batch leads to a step
		want    []string
	}{
		"sleeping": {true, []bool{false, true, true}, []string{"asleep at level 1", "awake as before", "asleep at level 1",
			"awake as before", "asleep at level 1", "awake for version 1"}},
		"awake": {false, []bool{true, true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			api := plugintest.Harness(t, trajectories.Plugin())
			api.Start(configure(t, api.Def, func(*trajectories.Block) {}))
			api.Ready()
			server := plugintest.Harness(t, plugintest.FakeInference())
			server.Start(plugintest.FakeConfig{Stuck: true, EnableSleepMode: c.sleeps}) // it accepts any weights
			server.Ready()
			sync := plugintest.Harness(t, weights.Definition())
			train := plugintest.Harness(t, grpo.Plugin())
			book := api.Reference()
			train.Start(cty.ObjectVal(map[string]cty.Value{
				"model": cty.StringVal(model), "steps": cty.NumberIntVal(2), "batch_size": cty.NumberIntVal(8),
				"threads": cty.NumberIntVal(1), "trajectories": book.Values,
				"data": cty.ObjectVal(map[string]cty.Value{"batch_retry_delay": cty.NumberFloatVal(0.05),
					"batch_max_wait": cty.NumberFloatVal(0.2)}),
				"optimizer":  cty.ObjectVal(map[string]cty.Value{"offload": cty.True}),
				"correction": cty.ObjectVal(map[string]cty.Value{"mismatch_action": cty.StringVal("warn")}),
			}), func(r *pluginpb.StartRequest) {
				r.SyncedBy, r.Runtime = []string{sync.Address}, &pluginpb.Runtime{Python: python}
			})
			train.Ready()
			sync.Start(configure(t, sync.Def, func(s *weights.Config) {
				s.Trainer, s.Inference = train.Reference(), append(s.Inference, server.Reference())
				s.Every, s.Transport, s.Tolerance, s.ProbeTokens = 2, "reload", 1e9, []int64{1, 2, 3}
			}))
			sync.Ready()
			post, err := trajectory.New(api.Output("url"), trajectory.WithToken(api.Output("token")))
			if err != nil {
				t.Fatal(err)
			}
			for k, useful := range c.batches {
				for j := range 2 {
					if _, err := post.Post(t.Context(), scored(2*k+j, useful)); err != nil {
						t.Fatal(err)
					}
				}
			}
			train.WaitPhase(sdk.Completed)
			var slept []string
			for _, e := range server.Events() {
				if line := e.GetLog().GetMessage(); strings.HasPrefix(line, "asleep") || strings.HasPrefix(line, "awake") {
					slept = append(slept, line)
				}
			}
			if !slices.Equal(slept, c.want) {
				t.Errorf("the server did %q, want %q", slept, c.want)
			}
		})
	}
}
