//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/plugins/grpo"
	weights "github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// BenchmarkUpdate measures weight updates of PyTorch's worker on a tiny model: from the offer of the weights to the
// acknowledgement, and a whole step with its update.
func BenchmarkUpdate(b *testing.B) {
	python := torchPython(b)
	model := tinyLlama(b)
	for b.Loop() {
		updates, step := timeUpdates(b, python, model, 40)
		b.ReportMetric(float64(median(updates).Microseconds())/1000, "ms/update")
		b.ReportMetric(float64(step.Microseconds())/1000, "ms/step")
	}
}

// timeUpdates trains that many steps with an update after each. All batches are posted before the first step.
func timeUpdates(b *testing.B, python, model string, steps int) (updates []time.Duration, step time.Duration) {
	b.Helper()
	api := plugintest.Harness(b, trajectories.Plugin())
	api.Start(configure(b, api.Def, func(*trajectories.Block) {}))
	api.Ready()
	server := plugintest.Harness(b, plugintest.FakeInference())
	server.Start(plugintest.FakeConfig{Stuck: true}) // it accepts any weights
	server.Ready()
	sync := plugintest.Harness(b, weights.Definition())
	train := plugintest.Harness(b, grpo.Plugin())
	book := api.Reference()
	train.Start(cty.ObjectVal(map[string]cty.Value{
		"model": cty.StringVal(model), "steps": cty.NumberIntVal(int64(steps)), "batch_size": cty.NumberIntVal(8),
		"threads": cty.NumberIntVal(1), "trajectories": book.Values,
		"data": cty.ObjectVal(map[string]cty.Value{"batch_retry_delay": cty.NumberFloatVal(0.05),
			"batch_max_wait": cty.NumberFloatVal(0.2)}),
		"correction": cty.ObjectVal(map[string]cty.Value{"mismatch_action": cty.StringVal("warn")}),
	}), func(r *pluginpb.StartRequest) {
		r.SyncedBy, r.Runtime = []string{sync.Address}, &pluginpb.Runtime{Python: python}
	})
	train.Ready()
	sync.Start(configure(b, sync.Def, func(s *weights.Config) {
		s.Trainer, s.Inference = train.Reference(), append(s.Inference, server.Reference())
		s.Every, s.Transport, s.Tolerance, s.ProbeTokens, s.InFlight = 1, "reload", 1e9, []int64{1, 2, 3}, "keep"
	}))
	sync.Ready()
	post, err := trajectory.New(api.Output("url"), trajectory.WithToken(api.Output("token")))
	if err != nil {
		b.Fatal(err)
	}
	for k := range 2 * steps {
		if _, err := post.Post(b.Context(), scored(k, true)); err != nil {
			b.Fatal(err)
		}
	}
	train.WaitPhase(sdk.Completed)
	for _, e := range sync.Events() {
		if w := e.GetWeights(); w != nil {
			updates = append(updates, time.Duration(w.Seconds*float64(time.Second)))
		}
	}
	var first, last time.Time
	for _, e := range train.Events() {
		if p := e.GetProgress(); p != nil {
			if first.IsZero() {
				first = time.Unix(0, e.GetTimeUnixNano())
			}
			last = time.Unix(0, e.GetTimeUnixNano())
		}
	}
	return updates, last.Sub(first) / time.Duration(steps-1)
}
