package plugintest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFakeInferenceComplies(t *testing.T) {
	plugintest.Compliance(t, plugintest.FakeInference(), plugintest.Suite{
		Config: func(*testing.T) any { return plugintest.FakeConfig{} },
		Weights: func(t *testing.T, dir string, version int64) sdk.Weights {
			path, err := plugintest.FakeWeights(dir, float64(version))
			if err != nil {
				t.Fatal(err)
			}
			return sdk.Weights{Version: version, Path: path, Format: "fake", Transport: "reload", Precision: "float64"}
		},
	})
}

func TestFakeTrainerComplies(t *testing.T) {
	plugintest.Compliance(t, plugintest.FakeTrainer(), plugintest.Suite{
		Config: func(*testing.T) any { return plugintest.FakeTrainerConfig{Steps: 5} },
	})
}
