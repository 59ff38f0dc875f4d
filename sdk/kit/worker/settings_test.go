package worker

import (
	"reflect"
	"testing"
)

// block is a configuration with sections.
type block struct {
	Steps        int64  `recipe:"steps" worker:"steps" default:"100"`
	MaxStaleness *int64 `recipe:"max_staleness" worker:"data.max_staleness"`
	Loss         *loss  `recipe:"loss,block"`
	KL           *kl    `recipe:"kl,block"`
}

type loss struct {
	Name  string   `recipe:"name" worker:"loss.name" default:"ppo"`
	Delta *float64 `recipe:"delta" worker:"loss.delta"`
}

type kl struct {
	Coefficient float64 `recipe:"coefficient" worker:"kl.coefficient" default:"0.001"`
}

func TestDifference(t *testing.T) {
	t.Parallel()
	a := map[string]any{"steps": int64(1), "optimizer": map[string]any{"learning_rate": 1.0, "name": "adamw"}}
	b := map[string]any{"steps": int64(1), "optimizer": map[string]any{"learning_rate": 2.0, "name": "adamw"},
		"seed": int64(3)}
	want := map[string]any{"optimizer": map[string]any{"learning_rate": 2.0}, "seed": int64(3)}
	if got := difference(a, b, nil); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A setting that is removed from the recipe gets the worker's default again, instead of silently keeping its value.
func TestSettingsThatAreTakenOut(t *testing.T) {
	t.Parallel()
	staleness, delta := int64(2), 0.5
	full := block{Steps: 3, MaxStaleness: &staleness, Loss: &loss{Name: "ppo", Delta: &delta}, KL: &kl{Coefficient: 0.5}}
	less := block{Steps: 3, Loss: &loss{Name: "ppo"}}
	got := difference(Settings(full), Settings(less), Defaults[block]())
	lossChange, _ := got["loss"].(map[string]any)
	klChange, _ := got["kl"].(map[string]any)
	data, _ := got["data"].(map[string]any)
	for name, c := range map[string]struct {
		section map[string]any
		want    any
	}{"max_staleness": {data, nil}, "delta": {lossChange, nil}, "coefficient": {klChange, 0.001}} {
		if value, reported := c.section[name]; !reported || value != c.want {
			t.Errorf("%s: reported %v, value %v; want %v", name, reported, value, c.want)
		}
	}
	if len(lossChange) != 1 || len(data) != 1 || len(got) != 3 {
		t.Errorf("%v; want nothing but what has changed", got)
	}
	if again := difference(Settings(less), Settings(less), Defaults[block]()); len(again) > 0 {
		t.Errorf("nothing has changed, and the worker gets %v", again)
	}
}
