package ui

import (
	"slices"
	"strconv"
	"testing"

	"github.com/recipe-rl/recipe/engine/event"
)

// The machine of a job has its host and its block as labels, that of the engine has neither.
func TestMachinesHaveTheirLabels(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.event(event.Event{Type: event.Machine, Metrics: map[string]float64{"cpu": 0.5, "gpu/0/utilization": 0.25}})
	f.event(event.Event{Type: event.Machine, Address: "trainer.tiny.policy", Host: "n1",
		Metrics: map[string]float64{"memory_bytes": 64, "gpu/3/utilization": 0.75}})
	run, err := f.run("demo")
	must(t, err)
	all := families{}
	run.families(all)
	var got []string
	for _, name := range []string{"recipe_machine_cpu", "recipe_machine_memory_bytes", "recipe_machine_gpu_utilization"} {
		for _, m := range all[name].GetMetric() {
			text := name
			for _, l := range m.GetLabel() {
				text += " " + l.GetName() + "=" + l.GetValue()
			}
			got = append(got, text+" "+strconv.FormatFloat(m.GetGauge().GetValue(), 'g', -1, 64))
		}
	}
	slices.Sort(got)
	if want := []string{
		"recipe_machine_cpu run=demo 0.5",
		"recipe_machine_gpu_utilization run=demo gpu=0 0.25",
		"recipe_machine_gpu_utilization run=demo host=n1 block=trainer.tiny.policy gpu=3 0.75",
		"recipe_machine_memory_bytes run=demo host=n1 block=trainer.tiny.policy 64",
	}; !slices.Equal(got, want) {
		t.Errorf("the metrics are\n%q, expected\n%q", got, want)
	}
}
