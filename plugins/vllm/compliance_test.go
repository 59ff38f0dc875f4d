package vllm

import (
	"os"
	"strconv"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// TestCompliance runs the checks that every inference plugin must pass, over a real gRPC connection and with the gateway in front.
func TestCompliance(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := func(t *testing.T) any {
		return cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal(model(t, 0))})
	}
	plugintest.Compliance(t, Plugin(), plugintest.Suite{
		Config: config,
		Options: []plugintest.Option{func(r *pluginpb.StartRequest) {
			r.Runtime = &pluginpb.Runtime{Python: exe}
			r.Environment = map[string]string{fakeMark: "1"}
		}},
		Bad: map[string]func(t *testing.T) any{
			"port in extra_args": func(t *testing.T) any {
				return cty.ObjectVal(map[string]cty.Value{
					"model": cty.StringVal(model(t, 0)), "extra_args": cty.ListVal([]cty.Value{cty.StringVal("--port"), cty.StringVal("8000")}),
				})
			},
		},
		Weights: func(t *testing.T, dir string, version int64) sdk.Weights {
			put(t, dir, "config.json", "{}")
			put(t, dir, "weights.txt", strconv.FormatInt(version, 10))
			putSafetensors(t, dir+"/model.safetensors")
			return sdk.Weights{Version: version, Path: dir, Format: "hf", Transport: "reload", Precision: "float32"}
		},
	})
}
