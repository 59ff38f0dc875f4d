package sizing_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Tensors cross a network only where the recipe asks for it, and the trainer has an address there.
func TestTensorsBetweenMachinesNeedTheRecipe(t *testing.T) {
	t.Parallel()
	const sent = "nccl,reload,restart"
	job := func() *sdk.Placement { return &sdk.Placement{Executor: "executor.slurm.x"} }
	for asked, want := range map[string][]string{
		"nccl": {"weights move by nccl", "The recipe sets it"},
		"auto": {"weights move by reload", `unencrypted, only with transport = "nccl"`},
	} {
		preferred := sent
		if asked != "auto" {
			preferred = asked
		}
		w := world{
			placed: map[kind.Kind]*sdk.Placement{kind.Inference: job(), kind.Trainer: job()},
			estimates: map[kind.Kind]sdk.Estimate{
				kind.Sync:      facts("transport", asked, "transports", preferred, "in_flight", "drain"),
				kind.Inference: facts("transports", sent), kind.Trainer: facts("transports", sent),
			},
		}
		for _, text := range want {
			if !slices.ContainsFunc(w.check(), func(f plan.Finding) bool {
				return f.Severity == "info" && strings.Contains(f.Summary+" "+f.Detail, text)
			}) {
				t.Errorf("transport = %q: the plan does not say %q: %+v", asked, text, w.check())
			}
		}
	}
}

// A plan names the chosen transport, and why no faster one is used.
func TestThePlanSaysHowWeightsMove(t *testing.T) {
	t.Parallel()
	const all, preferred = "live,ipc,reload,restart", "ipc,nccl,lora,reload,restart"
	const sent = "live,ipc,nccl,reload,restart"
	same := &sdk.Placement{Devices: []string{"0"}}
	for name, c := range map[string]struct {
		asked, preferred string
		trainer, server  sdk.Estimate
		away             *sdk.Placement // of the server
		severity         string
		want             []string
	}{
		"one GPU": {"auto", preferred, facts("transports", all, "devices", "0"),
			facts("transports", all, "devices", "0"), same, "info",
			[]string{"weights move by ipc", "fastest that all blocks support", "Not live"}},
		"two GPUs": {"auto", preferred, facts("transports", all, "devices", "1"),
			facts("transports", all, "devices", "0"), same, "info",
			[]string{"weights move by reload", "not see (set peer_devices)"}},
		"two GPUs, sent": {"auto", preferred, facts("transports", sent, "devices", "1"),
			facts("transports", sent, "devices", "0"), same, "info",
			[]string{"weights move by nccl", "set peer_devices"}},
		"sent to one's own GPU": {"nccl", "nccl", facts("transports", sent, "devices", "0"),
			facts("transports", sent, "devices", "0"), same, "error",
			[]string{`transport = "nccl" cannot be used`, "NCCL needs a GPU for each"}},
		"sent to another machine": {"auto", preferred, facts("transports", sent), facts("transports", sent),
			&sdk.Placement{Host: "b"}, "info",
			[]string{"weights move by reload", "nccl: ", "on different machines"}},
		"asked to send to another machine, from the engine's": {"nccl", "nccl", facts("transports", sent),
			facts("transports", sent), &sdk.Placement{Executor: "executor.slurm.x"}, "error",
			[]string{`transport = "nccl" cannot be used`, "trainer.x.a has no executor, so it listens on its own machine only"}},
		"two GPUs that are seen": {"auto", preferred, facts("transports", all, "devices", "1"),
			facts("transports", all, "devices", "0,1"), same, "info",
			[]string{"weights move by ipc"}},
		"no GPU": {"auto", preferred, facts("transports", all), facts("transports", all), same, "info",
			[]string{"weights move by ipc", "must reach the same memory"}},
		"GPUs that are not known yet": {"auto", preferred, facts("transports", all, "devices", "0"),
			facts("transports", all), &sdk.Placement{GPUs: 1}, "info",
			[]string{"weights move by ipc"}},
		"only one on a GPU": {"auto", preferred, facts("transports", sent, "devices", "0"), facts("transports", sent),
			nil, "info",
			[]string{"weights move by reload", "has a GPU in its placement"}},
		"quantized": {"auto", preferred, facts("transports", all),
			facts("transports", "restart", "no_memory", `quantization = "fp8": not those`), same, "info",
			[]string{"weights move by restart", `quantization = "fp8"`}},
		"another machine": {"auto", preferred, facts("transports", all), facts("transports", all),
			&sdk.Placement{Host: "b"}, "info",
			[]string{"weights move by reload", "on different machines", "if one does not, auto chooses delta"}},
		"differences asked for": {"delta", "delta", facts("transports", all), facts("transports", all),
			&sdk.Placement{Host: "b"}, "info",
			[]string{"weights move by delta", "The recipe sets it"}},
		"differences asked for in vain": {"delta", "delta", facts("transports", all), facts("transports", "restart"), same,
			"error", []string{`transport = "delta" cannot be used`, "inference.x.a does not support it"}},
		"answers go on": {"auto", "live," + preferred, facts("transports", all, "devices", "0"),
			facts("transports", all, "devices", "0"), same, "info",
			[]string{"weights move by live"}},
		"asked for": {"reload", "reload", facts("transports", all), facts("transports", all), same, "info",
			[]string{"weights move by reload", "The recipe sets it"}},
		"asked for in vain": {"nccl", "nccl", facts("transports", all), facts("transports", all), same, "error",
			[]string{`transport = "nccl" cannot be used`, "does not support it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world{
				placed: map[kind.Kind]*sdk.Placement{kind.Inference: c.away, kind.Trainer: same},
				estimates: map[kind.Kind]sdk.Estimate{
					kind.Sync:      facts("transport", c.asked, "transports", c.preferred, "in_flight", "drain"),
					kind.Inference: c.server, kind.Trainer: c.trainer,
				},
			}
			for _, f := range w.check() {
				text := f.Summary + " " + f.Detail
				if f.Address.Kind != kind.Sync || !strings.Contains(text, "weights move") &&
					!strings.Contains(text, "transport") {
					continue
				}
				if f.Severity != c.severity {
					t.Errorf("it is reported as %s, want %s: %s", f.Severity, c.severity, text)
				}
				for _, want := range c.want {
					if !strings.Contains(text, want) {
						t.Errorf("the plan says %q, want %q in it", text, want)
					}
				}
				return
			}
			t.Errorf("the plan says nothing of it: %+v", w.check())
		})
	}
}
