package sync_test

import (
	"testing"
	"time"

	"github.com/recipe-rl/recipe/plugins/sync"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestSyncComplies(t *testing.T) {
	plugintest.Compliance(t, sync.Definition(), plugintest.Suite{
		Config: func(t *testing.T) any {
			return config(startTrainer(t, plugintest.FakeTrainerConfig{Steps: 1000, Delay: 10 * time.Millisecond}),
				startInference(t, plugintest.FakeConfig{}))
		},
		Synced: func(t *testing.T) (any, *plugintest.Block, *plugintest.Block) {
			train, serve := startTrainer(t, plugintest.FakeTrainerConfig{Steps: 3}), startInference(t, plugintest.FakeConfig{})
			return config(train, serve), train, serve
		},
		Bad: map[string]func(*testing.T) any{
			"unknown transport": func(t *testing.T) any {
				c := config(startTrainer(t, plugintest.FakeTrainerConfig{}), startInference(t, plugintest.FakeConfig{}))
				c.Transport = "pigeon"
				return c
			},
		},
	})
}
