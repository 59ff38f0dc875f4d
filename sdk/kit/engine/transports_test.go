package engine

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/transport"
)

func TestTransportsOfSettings(t *testing.T) {
	t.Parallel()
	all, lora := Spec{}, Spec{Lora: true}
	quantized, split := Spec{Quantization: "awq"}, Spec{Parallel: Parallel{Pipeline: Factor{"pp_size", 2}}}
	requantized := Spec{Quantization: "fp8", Requantizes: true}
	for want, c := range map[string]Spec{
		"live,ipc,nccl,reload,restart": all, "live,ipc,nccl,lora,reload,restart": lora, "restart": quantized,
		"reload,restart": split,
	} {
		if got := strings.Join(transport.Texts(c.Transports()), ","); got != want {
			t.Errorf("%+v: %s, want %s", c, got, want)
		}
	}
	if got := strings.Join(transport.Texts(requantized.Transports()), ","); got != "live,ipc,nccl,reload,restart" {
		t.Errorf("of a server that quantizes what it loads: %s", got)
	}
	if got := strings.Join(transport.Texts(all.TransportsWithin(nil)), ","); got != "reload,restart" {
		t.Errorf("without memory in reach: %s", got)
	}
	for _, c := range []struct {
		settings Spec
		weights  sdk.Weights
		want     string // in the error; empty: accepted
	}{
		{all, sdk.Weights{Transport: "ipc", Format: "handles"}, ""},
		{all, sdk.Weights{Transport: "reload", Format: "hf"}, ""},
		{all, sdk.Weights{Format: "hf"}, ""},
		{lora, sdk.Weights{Transport: "lora", Format: "lora"}, ""},
		{all, sdk.Weights{Transport: "lora", Format: "lora"}, "without LoRA"},
		{quantized, sdk.Weights{Transport: "reload", Format: "hf"}, "quantized server"},
		{quantized, sdk.Weights{Transport: "ipc", Format: "handles"}, `by transport "ipc"`},
		{requantized, sdk.Weights{Transport: "reload", Format: "hf"}, ""},
		{requantized, sdk.Weights{Transport: "ipc", Format: "handles"}, ""},
		{split, sdk.Weights{Transport: "nccl", Format: "handles"}, `by transport "nccl"`},
		{split, sdk.Weights{Transport: "reload", Format: "hf"}, ""},
		{all, sdk.Weights{Transport: "pigeon"}, `by transport "pigeon"`},
	} {
		err := c.settings.accepts(c.weights)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v, %+v: %v, want %q", c.settings, c.weights, err, c.want)
		}
	}
}
