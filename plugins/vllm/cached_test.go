package vllm

import (
	"os"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kit/engine"
	"github.com/recipe-rl/recipe/sdk/kit/engine/enginetest"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
)

// A server whose prefix cache outlives its weights passes the check of log-probabilities, and answers clients with what
// older weights computed of their prompts.
//
//docs:weights.md Tests
func TestAPrefixCacheThatOutlivesItsWeightsIsNoticed(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cache   string
		caching bool
		want    string
	}{
		"emptied":           {"", true, ""},
		"kept":              {"keeps", true, "through its prefix cache"},
		"kept and not used": {"keeps", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := plugintest.Harness(t, Plugin())
			b.Start(cty.ObjectVal(map[string]cty.Value{"model": cty.StringVal(enginetest.Model(t, 0)),
				"enable_prefix_caching": cty.BoolVal(c.caching)}), func(r *pluginpb.StartRequest) {
				r.Runtime = &pluginpb.Runtime{Python: exe}
				r.Environment = map[string]string{fakeMark: "1", fakeCache: c.cache}
			})
			b.Ready()
			g := gateway.NewClient(b.Output("control_url"), b.Output("control_token"))
			defer g.Close()
			update := func(version int) error {
				w := sdk.Weights{Version: int64(version), Path: enginetest.Model(t, float64(version)), Format: "hf",
					Transport: "reload"}
				value := -1 - 2*float64(version)
				check := &gateway.Check{Tokens: []int{1, 2, 3}, Logprobs: []float64{0, value, value}, Tolerance: 1e-9}
				_, err := g.UpdateWeights(t.Context(), gateway.WeightUpdate{Weights: w, Check: check})
				return err
			}
			if err := update(1); err != nil {
				t.Fatal(err)
			}
			err := update(2)
			if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("second update: %v, want %q", err, c.want)
			}
		})
	}
}

func TestHowLongAPromptIsKept(t *testing.T) {
	t.Parallel()
	off := false
	for name, c := range map[string]struct {
		caching *bool
		device  string
		longest int64
		want    int
	}{
		"gpu":              {nil, "cuda", 2048, 129},
		"short gpu":        {nil, "cuda", 100, 65},
		"very short gpu":   {nil, "cuda", 32, 17},
		"nothing fits":     {nil, "cuda", 16, 0},
		"cpu":              {nil, "cpu", 256, 129},
		"short cpu":        {nil, "cpu", 128, 0},
		"no cache":         {&off, "cuda", 2048, 0},
		"not yet answered": {nil, "", 0, 0},
	} {
		facts := engine.Facts{WorkerFacts: engine.WorkerFacts{Device: c.device}, MaxModelLen: c.longest}
		if got := (Config{EnablePrefixCaching: c.caching}).cachedPrompt(facts); got != c.want {
			t.Errorf("%s: %d tokens, want %d", name, got, c.want)
		}
	}
}
