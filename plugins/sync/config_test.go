package sync

import (
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// side is a block that offers transports; none: it does not say.
func side(address string, k kind.Kind, transports ...string) spec.Ref {
	values := map[string]cty.Value{"address": cty.StringVal(address)}
	if transports != nil {
		var list []cty.Value
		for _, name := range transports {
			list = append(list, cty.StringVal(name))
		}
		values["transports"] = cty.ListVal(list)
	}
	return spec.Ref{Address: address, Kind: k, Values: cty.ObjectVal(values)}
}

func TestChoice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trainer, first, second []string
		asked, want, problem   string
	}{
		"nobody says":         {nil, nil, nil, "auto", "reload", ""},
		"the quickest of all": {[]string{"reload", "lora"}, []string{"lora", "reload"}, []string{"reload", "lora"}, "auto", "lora", ""},
		"what all share":      {[]string{"reload", "lora"}, []string{"lora", "reload"}, nil, "auto", "reload", ""},
		"asked for":           {[]string{"reload", "lora"}, []string{"lora", "reload"}, []string{"lora", "reload"}, "reload", "reload", ""},
		"not offered by one":  {[]string{"lora", "reload"}, []string{"lora", "reload"}, nil, "lora", "", "not offered by inference.b.second"},
		"nothing in common":   {[]string{"live"}, []string{"nccl"}, []string{"nccl"}, "auto", "", "no transport in common"},
	} {
		config := Config{
			Trainer:   side("trainer.a.t", kind.Trainer, c.trainer...),
			Inference: []spec.Ref{side("inference.a.first", kind.Inference, c.first...), side("inference.b.second", kind.Inference, c.second...)},
			Transport: c.asked,
		}
		got, err := config.choose()
		if got != c.want || (err == nil) != (c.problem == "") || (err != nil && !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, c.want, c.problem)
		}
	}
}

func TestTolerance(t *testing.T) {
	t.Parallel()
	for precision, want := range map[string]float64{"": 1e-3, "float32": 1e-3, "float64": 1e-3, "bfloat16": 0.3, "float16": 0.3} {
		if got := (Config{}).tolerance(precision); got != want {
			t.Errorf("%q: %v, want %v", precision, got, want)
		}
	}
	if got := (Config{Tolerance: 0.05}).tolerance("bfloat16"); got != 0.05 {
		t.Errorf("the recipe's tolerance became %v", got)
	}
	if got := (Config{ProbeTokens: []int64{7, 8}}).probe(); len(got) != 2 || got[1] != 8 {
		t.Errorf("the recipe's tokens became %v", got)
	}
}
