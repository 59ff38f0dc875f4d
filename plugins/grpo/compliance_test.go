package grpo

import (
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk/kit/worker/workertest"
)

func TestMain(m *testing.M) {
	workertest.Main()
	goleak.VerifyTestMain(m)
}

func TestCompliance(t *testing.T) {
	workertest.Compliance(t, Plugin(), map[string]cty.Value{"mini_batch_size": cty.NumberIntVal(128)})
}
