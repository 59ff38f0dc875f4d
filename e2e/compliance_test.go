package e2e

import (
	"path/filepath"
	"testing"

	"github.com/recipe-rl/recipe/plugins/arithmetic"
	"github.com/recipe-rl/recipe/plugins/tiny"
	"github.com/recipe-rl/recipe/plugins/tiny/lm"
	"github.com/recipe-rl/recipe/plugins/trajectories"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// tinyWeights writes a model that differs from the built-in one, by another amount for each version.
func tinyWeights(t *testing.T, dir string, version int64) sdk.Weights {
	t.Helper()
	c, err := lm.Load("../plugins/tiny/warm.tiny")
	if err != nil {
		t.Fatal(err)
	}
	for i, flat := 0, c.Params.Flat(); i < len(flat); i += 7 {
		flat[i] += 0.01 * float32(version)
	}
	path := filepath.Join(dir, "policy.tiny")
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	return sdk.Weights{Version: version, Path: path, Format: "tiny", Transport: "reload", Precision: "float32"}
}

func TestTinyInferenceComplies(t *testing.T) {
	plugintest.Compliance(t, tiny.Inference(), plugintest.Suite{
		Config: func(t *testing.T) any { return configure(t, tiny.Inference(), func(*tiny.InferenceConfig) {}) },
		Bad: map[string]func(*testing.T) any{
			"no such model": func(t *testing.T) any {
				return configure(t, tiny.Inference(), func(c *tiny.InferenceConfig) { c.Model = "/no/such/model" })
			},
		},
		Weights: tinyWeights,
	})
}

// rollingOut starts what a tiny trainer needs: a trajectory API, inference and an environment that posts.
func rollingOut(t *testing.T) (environment, api spec.Ref) {
	t.Helper()
	book, server := plugintest.Harness(t, trajectories.Plugin()), plugintest.Harness(t, tiny.Inference())
	book.Start(configure(t, book.Def, func(*trajectories.Block) {}))
	book.Ready()
	server.Start(configure(t, server.Def, func(*tiny.InferenceConfig) {}))
	server.Ready()
	api = book.Reference()
	env := plugintest.Harness(t, arithmetic.Definition())
	env.Start(configure(t, env.Def, func(c *arithmetic.Config) { c.Inference, c.Trajectories = server.Reference(), &api }))
	env.Ready()
	return env.Reference(), api
}

func TestTinyTrainerComplies(t *testing.T) {
	plugintest.Compliance(t, tiny.Trainer(), plugintest.Suite{
		Config: func(t *testing.T) any {
			environment, api := rollingOut(t)
			return configure(t, tiny.Trainer(), func(c *tiny.TrainerConfig) {
				c.Environments, c.Trajectories, c.BatchSize, c.LearningRate, c.WarmupSteps = []spec.Ref{environment}, &api, 64,
					1e-2, 0
			})
		},
	})
}

func TestArithmeticComplies(t *testing.T) {
	groups := func(t *testing.T) (any, *plugintest.Trajectories) {
		api := plugintest.FakeTrajectories(t, 64)
		server := plugintest.Harness(t, tiny.Inference())
		server.Start(configure(t, server.Def, func(*tiny.InferenceConfig) {}))
		server.Ready()
		book := api.Reference()
		return configure(t, arithmetic.Definition(), func(c *arithmetic.Config) {
			c.Inference, c.Trajectories = server.Reference(), &book
		}), api
	}
	plugintest.Compliance(t, arithmetic.Definition(), plugintest.Suite{
		Config: func(t *testing.T) any { c, _ := groups(t); return c },
		Groups: groups,
	})
}

func TestTrajectoriesComplies(t *testing.T) {
	plugintest.Compliance(t, trajectories.Plugin(), plugintest.Suite{
		Config: func(t *testing.T) any { return configure(t, trajectories.Plugin(), func(*trajectories.Block) {}) },
		Bad: map[string]func(*testing.T) any{
			"no such store": func(t *testing.T) any {
				return configure(t, trajectories.Plugin(), func(c *trajectories.Block) { c.Store = "shoebox" })
			},
		},
	})
}
