package sync

import (
	"slices"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// side is a block that offers transports; none: it does not report them.
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

// with adds outputs to a side.
func with(r spec.Ref, outputs map[string]string) spec.Ref {
	values := r.Values.AsValueMap()
	for name, text := range outputs {
		values[name] = cty.StringVal(text)
		if name == "reach" {
			values[name] = cty.ListVal([]cty.Value{cty.StringVal(text)})
		}
	}
	r.Values = cty.ObjectVal(values)
	return r
}

func TestChoice(t *testing.T) {
	t.Parallel()
	all := []string{"restart", "lora", "reload", "ipc", "live"}
	here, there := map[string]string{"memory": "gpu:A", "reach": "gpu:A"}, map[string]string{"reach": "gpu:B"}
	sent := append([]string{"nccl"}, all...)
	for name, c := range map[string]struct {
		trainer, first, second []string
		reach                  map[string]string // of the second
		asked, inFlight        string
		want, problem          string
	}{
		"nobody says": {asked: "auto", want: "reload"},
		"the quickest of all": {trainer: []string{"reload", "lora"}, first: []string{"lora", "reload"},
			second: []string{"reload", "lora"}, asked: "auto", want: "lora"},
		"what all share": {trainer: []string{"reload", "lora"}, first: []string{"lora", "reload"},
			asked: "auto", want: "reload"},
		"asked for": {trainer: []string{"reload", "lora"}, first: []string{"lora", "reload"},
			second: []string{"lora", "reload"}, asked: "reload", want: "reload"},
		"not offered by one": {trainer: []string{"lora", "reload"}, first: []string{"lora", "reload"}, asked: "lora",
			problem: "not offered by inference.b.second"},
		"nothing in common": {trainer: []string{"live"}, first: []string{"nccl"}, second: []string{"nccl"},
			asked: "auto", problem: "no transport in common"},
		"memory of the same GPU": {trainer: all, first: all, second: all, reach: here, asked: "auto", want: "ipc"},
		"another GPU, sent to":   {trainer: sent, first: sent, second: sent, reach: there, asked: "auto", want: "nccl"},
		"one of the same GPU": {trainer: sent, first: sent, second: sent, reach: here,
			asked: "nccl", problem: "one GPU"},
		"no GPU": {trainer: sent, first: sent, second: sent, reach: map[string]string{"reach": "host:H"},
			asked: "nccl", problem: "only one of"},
		"another machine": {trainer: sent, first: sent, second: sent, reach: map[string]string{"reach": "gpu:B",
			"machine": "M"}, asked: "auto", want: "lora"},
		"another machine, asked for": {trainer: sent, first: sent, second: sent, reach: map[string]string{"reach": "gpu:B",
			"machine": "M"}, asked: "nccl", want: "nccl"},
		"another GPU": {trainer: all, first: all, second: all, reach: there, asked: "auto", want: "lora"},
		"another GPU, and asked for": {trainer: all, first: all, second: all, reach: there, asked: "ipc",
			problem: "out of reach of inference.b.second"},
		"live where answers go on": {trainer: all, first: all, second: all, reach: here, asked: "auto", inFlight: "keep",
			want: "live"},
		"live only if asked for": {trainer: all, first: all, second: all, reach: here, asked: "auto", inFlight: "abort",
			want: "ipc"},
		"live asked for while others": {trainer: all, first: all, second: all, reach: here, asked: "live", inFlight: "drain",
			want: "live"},
	} {
		config := Config{
			Trainer: side("trainer.a.t", kind.Trainer, c.trainer...),
			Inference: []spec.Ref{side("inference.a.first", kind.Inference, c.first...), side("inference.b.second",
				kind.Inference, c.second...)},
			Transport: c.asked, InFlight: c.inFlight,
		}
		if c.reach != nil {
			near := here
			// else one on the trainer's GPU refuses it
			if slices.Contains(c.first, "nccl") && !strings.HasPrefix(name, "one of") {
				near = map[string]string{"memory": "gpu:A", "reach": "gpu:C"}
			}
			config.Trainer, config.Inference[0] = with(config.Trainer, here), with(config.Inference[0], near)
			config.Inference[1] = with(config.Inference[1], c.reach)
		}
		got, _, err := config.choose("")
		if string(got) != c.want || (err == nil) != (c.problem == "") ||
			(err != nil && !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s: %q, %v; want %q, %q", name, got, err, c.want, c.problem)
		}
	}
}

func TestTolerance(t *testing.T) {
	t.Parallel()
	for precision, want := range map[string]float64{"": 1e-3, "float32": 1e-3, "float64": 1e-3, "bfloat16": 0.3,
		"float16": 0.3, "bfloat16+float32": 0.3, "float8": 0.6} {
		if got := (Config{}).tolerance(precision); got != want {
			t.Errorf("%q: %v, want %v", precision, got, want)
		}
	}
	for arithmetic, want := range map[string]float64{"float32": 1e-3, "tf32": 3e-2, "bfloat16": 0.3, "float8": 0.6} {
		said := map[string]string{"arithmetic": arithmetic}
		for who, c := range map[string]Config{
			"server":  {Inference: []spec.Ref{with(side("inference.a.b", kind.Inference), said)}},
			"trainer": {Trainer: with(side("trainer.a.b", kind.Trainer), said)},
		} {
			if got := c.tolerance("float32"); got != want {
				t.Errorf("float32 weights in a %s that computes in %s: %v, want %v", who, arithmetic, got, want)
			}
		}
	}
	if got := (Config{Tolerance: 0.05}).tolerance("bfloat16"); got != 0.05 {
		t.Errorf("the recipe's tolerance became %v", got)
	}
}
