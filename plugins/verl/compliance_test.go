package verl

import (
	"os"
	"testing"

	"github.com/zclconf/go-cty/cty"
	"go.uber.org/goleak"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trainer/worker/workertest"
)

func TestMain(m *testing.M) {
	workertest.Main()
	goleak.VerifyTestMain(m)
}

// TestCompliance runs the checks that every trainer must pass, over a real gRPC connection.
func TestCompliance(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := func(*testing.T) any {
		api := plugintest.Ref("trajectories.builtin.default", kind.Trajectories,
			outputs.Trajectories{URL: "http://127.0.0.1:8000", Token: "token"})
		return cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal("org/model"), "steps": cty.NumberIntVal(1000),
			"trajectories": api.Values})
	}
	plugintest.Compliance(t, Plugin(), plugintest.Suite{
		Config: config,
		Options: []plugintest.Option{func(r *pluginpb.StartRequest) {
			r.Runtime = &pluginpb.Runtime{Python: exe}
			r.Environment = workertest.Environment("patient")
		}},
		Bad: map[string]func(t *testing.T) any{
			"sequences of one token": func(t *testing.T) any {
				values := config(t).(cty.Value).AsValueMap()
				values["max_length"] = cty.NumberIntVal(1)
				return cty.ObjectVal(values)
			},
		},
	})
}
