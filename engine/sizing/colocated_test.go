package sizing_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// A plan says how trainer and inference share their GPU, and why.
func TestThePlanSaysWhoSleepsAndWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode, sleeps string
		memory       float64
		want         []string
	}{
		"sleeps, would not fit": {"auto", "true", 80, []string{"inference sleeps while the trainer works on GPU 0",
			"enable_sleep_mode = true", "would need 96.0 GiB of 80.0 GiB"}},
		"sleeps, would fit": {"auto", "true", 320, []string{"inference sleeps while the trainer works on GPU 0",
			"also fit at the same time"}},
		"sleeps, asked for": {"sleep", "true", 80, []string{"inference sleeps while the trainer works on GPU 0",
			"colocated = \"sleep\"."}},
		"side by side":        {"auto", "false", 320, []string{"share GPU 0", "Not every inference block"}},
		"side by side, asked": {"share", "true", 320, []string{"share GPU 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gpu := &sdk.Placement{GPUs: 1}
			server, trainer := facts("sleeps", c.sleeps, "gpu_memory_utilization", "0.5"),
				facts("training_only", "activations")
			trainer.Amounts = []sdk.Amount{{Resource: "gpu_memory", Part: "weights", Value: 6 * gib},
				{Resource: "gpu_memory", Part: "activations", Value: 50 * gib}}
			w := world{
				machine: sizing.Machine{Devices: gpus(1), GPUMemory: c.memory * gib},
				placed:  map[kind.Kind]*sdk.Placement{kind.Inference: gpu, kind.Trainer: gpu},
				estimates: map[kind.Kind]sdk.Estimate{kind.Sync: facts("colocated", c.mode), kind.Inference: server,
					kind.Trainer: trainer},
			}
			for _, f := range w.check() {
				if text := f.Summary + " " + f.Detail; f.Address.Kind == kind.Sync &&
					strings.Contains(f.Summary, "colocated") {
					for _, want := range c.want {
						if !strings.Contains(text, want) {
							t.Errorf("the plan says %q, want %q in it", text, want)
						}
					}
					return
				}
			}
			t.Errorf("the plan says nothing of it: %+v", w.check())
		})
	}
}

// A GPU that a recipe names for two servers of a block is slower than with one.
func TestAPlanWarnsOfServersThatShareAGPU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind    kind.Kind
		devices []string
		want    string
	}{
		{kind.Inference, []string{"0", "0"}, "more than one of its servers is on GPU 0"},
		{kind.Inference, []string{"1", "0", "1", "1"}, "more than one of its servers is on GPU 1"},
		{kind.Inference, []string{"0", "1"}, ""},
		{kind.Trainer, []string{"0", "0"}, ""},
	} {
		w := world{
			machine:   sizing.Machine{Devices: gpus(2), GPUMemory: 80 * gib},
			placed:    map[kind.Kind]*sdk.Placement{c.kind: {GPUs: len(c.devices), Devices: c.devices}},
			estimates: map[kind.Kind]sdk.Estimate{c.kind: facts()},
		}
		got := ""
		for _, f := range w.check() {
			if f.Severity == "warning" && strings.Contains(f.Summary, "servers") {
				got += f.Summary
			}
		}
		if got != c.want {
			t.Errorf("%s on %v: the plan warns %q, want %q", c.kind, c.devices, got, c.want)
		}
	}
}
