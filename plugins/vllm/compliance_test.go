package vllm

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// TestCompliance runs the checks that every inference plugin must pass, over a real gRPC connection and with the
// gateway in front.
func TestCompliance(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := func(t *testing.T) any {
		return cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal(enginetest.Model(t, 0))})
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
					"model": cty.StringVal(enginetest.Model(t, 0)), "extra_args": cty.ListVal([]cty.Value{cty.StringVal("--port"),
						cty.StringVal("8000")}),
				})
			},
		},
		Weights: func(t *testing.T, _ string, version int64) sdk.Weights {
			return sdk.Weights{Version: version, Path: enginetest.Model(t, float64(version)), Format: "hf", Transport: "reload",
				Precision: "float32"}
		},
	})
}

// TestUpdateWhileAServerIsStartedAgain: weights that arrive while the only server is being started wait for it, instead
// of failing the trainer.
func TestUpdateWhileAServerIsStartedAgain(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pids := filepath.Join(t.TempDir(), "pids")
	b := plugintest.Harness(t, Plugin())
	config := cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal(enginetest.Model(t, 0))})
	b.Start(config, func(r *pluginpb.StartRequest) {
		r.Runtime = &pluginpb.Runtime{Python: exe}
		r.Environment = map[string]string{fakeMark: "1", fakePids: pids}
	})
	b.Ready()
	g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
	defer g.Close()
	server, _ := readPids(t, pids, 0)
	if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.Wait("the end of the server to be noticed", func(e *pluginpb.Event) bool {
		return strings.Contains(e.GetPhase().GetMessage(), "starting it again")
	})
	w := sdk.Weights{Version: 1, Path: enginetest.Model(t, 5), Format: "hf", Transport: "reload"}
	want := []float64{0, -11, -11}
	check := &gateway.Check{Tokens: []int{1, 2, 3}, Logprobs: want, Tolerance: 1e-9}
	if _, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Weights: w, Check: check}); err != nil {
		t.Fatalf("the update did not wait for the server: %v", err)
	}
}
