package worker

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// described is a configuration whose attributes a program describes.
type described struct {
	Rank    int64         `recipe:"rank" worker:"lora.rank"`
	Name    string        `recipe:"name" worker:"loss.name" doc:"Of its own"`
	Modules []string      `recipe:"modules" worker:"lora.modules" change:"replace"`
	Clip    *float64      `recipe:"clip" worker:"loss.clip"`
	Steps   int64         `recipe:"steps" worker:"steps" default:"7"`
	Place   string        `recipe:"place" doc:"Not the program's"`
	Rules   []describedIn `recipe:"rule,block" worker:"rules"`
}

type describedIn struct {
	High float64 `recipe:"high" worker:"high" required:"true"`
}

const descriptionJSON = `[
 {"name": "lora.rank", "default": 8, "description": "Rank.", "least": 1, "live": true, "choices": []},
 {"name": "loss.name", "default": "ppo", "description": "Loss.", "choices": ["ppo", "ce"]},
 {"name": "lora.modules", "default": ["all"], "description": "Modules."},
 {"name": "loss.clip", "default": null, "description": "Clip."},
 {"name": "steps", "default": 100, "description": "Steps."},
 {"name": "rules", "default": [], "description": "Rules.", "items": [
  {"name": "high", "default": null, "description": "Bound.", "least": 0}]}]`

func TestAProgramDescribesItsAttributes(t *testing.T) {
	t.Parallel()
	var program Description
	if err := json.Unmarshal([]byte(descriptionJSON), &program); err != nil {
		t.Fatal(err)
	}
	schema, err := spec.Of(described{})
	if err != nil {
		t.Fatal(err)
	}
	if err := Describe[described](program)(&sdk.Definition{Schema: schema}); err != nil {
		t.Fatal(err)
	}
	one, zero := 1.0, 0.0
	for name, want := range map[string]*spec.Attribute{
		"rank":    {Doc: "Rank", Default: cty.NumberIntVal(8), Min: &one, Change: spec.ChangeLive},
		"name":    {Doc: "Of its own", Default: cty.StringVal("ppo"), Enum: []string{"ppo", "ce"}, Change: spec.ChangeResume},
		"modules": {Doc: "Modules", Default: cty.ListVal([]cty.Value{cty.StringVal("all")}), Change: spec.ChangeReplace},
		"clip":    {Doc: "Clip", Change: spec.ChangeResume},
		"steps":   {Doc: "Steps", Default: cty.NumberIntVal(7), Change: spec.ChangeResume},
		"place":   {Doc: "Not the program's"},
	} {
		compareAttribute(t, name, schema.Attribute(name), want)
	}
	rule := schema.Block("rule").Schema
	compareAttribute(t, "high", rule.Attribute("high"), &spec.Attribute{Doc: "Bound", Min: &zero,
		Change: spec.ChangeResume})
	if rule.Doc != "Rules" {
		t.Errorf("the block's text is %q", rule.Doc)
	}
	want := map[string]any{"steps": 100.0, "rules": []any{},
		"lora": map[string]any{"rank": 8.0, "modules": []any{"all"}}, "loss": map[string]any{"name": "ppo", "clip": nil}}
	if got := program.Defaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("its defaults are %v, want %v", got, want)
	}
	err = Describe[described](program[1:])(&sdk.Definition{Schema: schema})
	if err == nil || !strings.Contains(err.Error(), "lora.rank") {
		t.Errorf("a setting that the program does not have: %v", err)
	}
}

func compareAttribute(t *testing.T, name string, got, want *spec.Attribute) {
	t.Helper()
	same := func(a, b cty.Value) bool {
		return a == cty.NilVal && b == cty.NilVal || a != cty.NilVal && a.RawEquals(b)
	}
	if got.Doc != want.Doc || !same(got.Default, want.Default) || got.Change != want.Change ||
		strings.Join(got.Enum, ",") != strings.Join(want.Enum, ",") || !reflect.DeepEqual(got.Min, want.Min) {
		t.Errorf("%s: got %+v, want %+v", name, got, want)
	}
}
