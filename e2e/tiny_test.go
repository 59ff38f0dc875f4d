package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/plugins/arithmetic"
	weights "github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/plugins/tiny"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// configure makes a block's configuration from its defaults and the values of a recipe.
func configure[C any](t testing.TB, def *sdk.Definition, change func(*C)) C {
	t.Helper()
	var c C
	if err := spec.Decode(def.Schema.ApplyDefaults(cty.EmptyObjectVal), def.Schema, &c); err != nil {
		t.Fatal(err)
	}
	change(&c)
	return c
}

// quickstart is the quickstart recipe's blocks, in the order in which an engine starts them.
type quickstart struct {
	api, inference, environment, trainer, sync *plugintest.Block
}

func startQuickstart(t *testing.T, steps int64, rate float64) quickstart {
	t.Helper()
	q := quickstart{
		api: plugintest.Harness(t, trajectories.Plugin()), inference: plugintest.Harness(t, tiny.Inference()),
		environment: plugintest.Harness(t, arithmetic.Definition()), trainer: plugintest.Harness(t, tiny.Trainer()),
		sync: plugintest.Harness(t, weights.Definition()),
	}
	q.api.Start(configure(t, q.api.Def, func(*trajectories.Block) {}))
	q.api.Ready()
	q.inference.Start(configure(t, q.inference.Def, func(*tiny.InferenceConfig) {}))
	q.inference.Ready()
	api := q.api.Reference()
	q.environment.Start(configure(t, q.environment.Def, func(c *arithmetic.Config) {
		c.Inference, c.Trajectories = q.inference.Reference(), &api
	}))
	q.environment.Ready()
	q.trainer.Start(configure(t, q.trainer.Def, func(c *tiny.TrainerConfig) {
		c.Model = q.inference.Output("model")
		c.Environments, c.Trajectories = []spec.Ref{q.environment.Reference()}, &api
		c.Steps, c.LearningRate, c.SaveEvery = steps, rate, 20
	}), func(r *pluginpb.StartRequest) { r.SyncedBy = []string{q.sync.Address} })
	q.trainer.Ready()
	q.sync.Start(configure(t, q.sync.Def, func(c *weights.Config) {
		c.Trainer, c.Inference = q.trainer.Reference(), []spec.Ref{q.inference.Reference()}
	}))
	return q
}

// evaluate asks the environment for the accuracy of the served policy on held-out problems.
func (q quickstart) evaluate(t *testing.T) (score float64, version int64) {
	t.Helper()
	answer, err := q.environment.Client.Evaluate(t.Context(), &pluginpb.EvaluateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetMetrics()["score"], answer.GetPolicyVersion()
}

// train waits until the trainer has done its steps. The harness bounds each wait, and a busy machine may need more than
// one.
func (q quickstart) train(t *testing.T, steps int64) {
	t.Helper()
	for next := int64(10); next <= steps; next += 10 {
		q.trainer.Wait(fmt.Sprintf("step %d", next), func(e *pluginpb.Event) bool { return e.GetMetrics().GetStep() >= next })
	}
	q.trainer.WaitPhase(sdk.Completed)
}

// reward is the mean reward of the trainer's steps first to last.
func (q quickstart) reward(first, last int64) float64 {
	var sum, n float64
	for _, e := range q.trainer.Events() {
		if m := e.GetMetrics(); m != nil && m.GetStep() >= first && m.GetStep() <= last {
			sum += m.GetValues()["reward"]
			n++
		}
	}
	return sum / n
}

// The quickstart learns through the real plugins, gateway, trajectory API and sync; with a learning rate of 0 it does
// not.
func TestQuickstartBlocksLearn(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // registered first, so checked last
	const steps = 120
	q := startQuickstart(t, steps, 3e-4)
	began := time.Now()
	q.train(t, steps)
	took := time.Since(began)
	learned, version := q.evaluate(t)
	if version != steps {
		t.Errorf("after %d steps the server is at policy version %d", steps, version)
	}
	path := q.trainer.Output("checkpoint")
	c, err := lm.Load(path)
	if err != nil || c.Step != steps {
		t.Fatalf("checkpoint %q: %v, want step %d", path, err, steps)
	}
	idle := startQuickstart(t, 20, 1e-12)
	idle.train(t, 20)
	untrained, _ := idle.evaluate(t)
	risen, flat := q.reward(steps-19, steps), idle.reward(1, 20)
	t.Logf("reward %.3f after training, %.3f without; held-out greedy %.3f and %.3f; %d steps in %s", risen, flat, learned,
		untrained, steps, took.Round(time.Millisecond))
	if risen < flat+0.05 || learned < untrained {
		t.Errorf("training made no clear difference: reward %.3f and %.3f, held-out %.3f and %.3f", risen, flat, learned,
			untrained)
	}
}
