package atropos

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// TestCompliance runs the checks that every environment plugin must pass on a real atroposlib environment.
func TestCompliance(t *testing.T) {
	interpreter := python(t)
	tokenizer, err := filepath.Abs(filepath.Join("testdata", "tokenizer"))
	if err != nil {
		t.Fatal(err)
	}
	object := func(t *testing.T, change func(map[string]cty.Value)) (any, *plugintest.Trajectories) {
		api, w := plugintest.FakeTrajectories(t, 64), newWorld(t)
		inference := plugintest.Ref("inference.fake.test", kind.Inference, outputs.Inference{BaseURL: w.URL + "/v1",
			APIKey: "key", Model: "policy", Tokenizer: tokenizer})
		values := map[string]cty.Value{
			"script":    cty.StringVal(filepath.Join(repository(t), "recipes", "environments", "addition.py")),
			"inference": inference.Values, "trajectories": api.Reference().Values,
		}
		change(values)
		return cty.ObjectVal(values), api
	}
	config := func(change func(map[string]cty.Value)) func(*testing.T) any {
		return func(t *testing.T) any {
			c, _ := object(t, change)
			return c
		}
	}
	same := func(map[string]cty.Value) {}
	plugintest.Compliance(t, Plugin(), plugintest.Suite{
		Config: config(same),
		Groups: func(t *testing.T) (any, *plugintest.Trajectories) { return object(t, same) },
		Grace:  time.Minute, // on a busy machine an interpreter takes a while to start and to end
		Options: []plugintest.Option{func(r *pluginpb.StartRequest) {
			r.Runtime = &pluginpb.Runtime{Python: interpreter}
			r.Environment = map[string]string{"HF_HUB_OFFLINE": "1", "PATH": os.Getenv("PATH")}
		}},
		Bad: map[string]func(*testing.T) any{
			"no such script":    config(func(v map[string]cty.Value) { v["script"] = cty.StringVal("none.py") }),
			"script and module": config(func(v map[string]cty.Value) { v["module"] = cty.StringVal("environments.addition") }),
			"unknown setting": config(func(v map[string]cty.Value) {
				v["config"] = cty.ObjectVal(map[string]cty.Value{"max_new_token": cty.NumberIntVal(3)})
			}),
		},
	})
}
