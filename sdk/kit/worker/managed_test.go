package worker

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestSettingsOfAnotherProjectAreLookedAt(t *testing.T) {
	t.Parallel()
	table := Managed{
		Managed: map[string]string{"steps": "write steps = … in the block", "section.server": "leave it out"},
		Known: map[string]string{
			"rate": "number", "rows": "whole number", "on": "bool", "loss": "string", "layers": "string|list|null",
			"section": "object", "section.beta": "number", "free": "object", "loose": "object", "loose.size": "number",
			"pairs": "string", "r": "", "temperature": "",
		},
		Open: []string{"loose"}, Pairs: []string{"pairs"},
		Choices: map[string][]string{"loss": {"dapo", "grpo"}},
		Least:   map[string]float64{"rows": 1, "section.beta": 0},
		Idle: []Rule{
			{Names: []string{"r"}, When: map[string][]any{"layers": {nil}}, Why: "it needs layers"},
			{Names: []string{"section.beta"}, When: map[string][]any{"loss": {nil, "grpo"}, "rate": {0.0}}, Why: "of dapo"},
			{Names: []string{"layers"}, When: map[string][]any{"mode": {"rollout"}}, Why: "mode is of the block"},
			{Names: []string{"temperature"}, Why: "nothing reads it"},
		},
	}
	for name, c := range map[string]struct {
		config map[string]any
		want   []string // path: words; a warning begins with ~
	}{
		"all right":     {map[string]any{"rate": int64(1), "rows": int64(2), "on": false, "loss": "dapo"}, nil},
		"a misspelling": {map[string]any{"raet": 1e-6}, []string{`config.raet: Did you mean "rate"?`}},
		"one in a section": {map[string]any{"section": map[string]any{"bata": 0.1}},
			[]string{"config.section.bata: section.beta"}},
		"what recipe decides": {map[string]any{"steps": int64(3)}, []string{"config.steps: Write steps = …"}},
		"that in a section": {map[string]any{"section": map[string]any{"server": ""}},
			[]string{"config.section.server: Leave"}},
		"a bool as text": {map[string]any{"on": "false"},
			[]string{"config.on: It is true or false; it was given a string."}},
		"a number as text": {map[string]any{"rate": "1e-6"}, []string{"config.rate: It is a number;"}},
		"half a row":       {map[string]any{"rows": 2.5}, []string{"config.rows: a whole number; it was given a number"}},
		"null": {map[string]any{"on": nil},
			[]string{"config.on: null, which is not the same as leaving it out"}},
		"null where it may be": {map[string]any{"layers": nil}, nil},
		"no section": {map[string]any{"section": "x"},
			[]string{"config.section: It is an object; it was given a string"}},
		"what nobody knows of": {map[string]any{"free": map[string]any{"anything": true}}, nil},
		"what is passed over": {map[string]any{"loose": map[string]any{"sise": 1.0, "size": 2.0}},
			[]string{`~config.loose.sise: has no effect. Nothing reads a setting of this name, and nothing complains of it. ` +
				`Did you mean "loose.size"?`}},
		"another kind in it": {map[string]any{"loose": map[string]any{"size": "x"}}, []string{"config.loose.size: a number"}},
		"pairs":              {map[string]any{"pairs": "a=1, b=2"}, nil},
		"no pairs":           {map[string]any{"pairs": "a=1,b"}, []string{`config.pairs: "b" is no name=value`}},
		"half a pair":        {map[string]any{"pairs": "a=1=2"}, []string{`config.pairs: "a=1=2" is no name=value`}},
		"another choice": {map[string]any{"loss": "dapoo"},
			[]string{`config.loss: one of dapo, grpo; it was given "dapoo"`}},
		"too little": {map[string]any{"rows": int64(0)}, []string{"config.rows: It is 1 or more; it was given 0."}},
		"too little below": {map[string]any{"section": map[string]any{"beta": -0.5}},
			[]string{"config.section.beta: It is 0 or more"}},
		"idle without another": {map[string]any{"r": int64(8)}, []string{"~config.r: It needs layers."}},
		"with the other":       {map[string]any{"r": int64(8), "layers": "all"}, nil},
		"the other is null":    {map[string]any{"r": int64(8), "layers": nil}, nil},
		"itself null":          {map[string]any{"r": nil}, nil},
		"idle beside one": {map[string]any{"section": map[string]any{"beta": 0.5}, "rate": 0.0},
			[]string{"~config.section.beta: Of dapo."}},
		"not beside another": {map[string]any{"section": map[string]any{"beta": 0.5}, "rate": 0.0, "loss": "dapo"}, nil},
		"idle for the block": {map[string]any{"layers": "all", "mode2": 1}, []string{"config.mode2: no setting",
			"~config.layers: Mode is of the block."}},
		"idle always": {map[string]any{"temperature": 1.0}, []string{"~config.temperature: Nothing reads it."}},
	} {
		beside := map[string]any{"mode": "trainer"}
		if strings.HasSuffix(name, "block") {
			beside["mode"] = "rollout"
		}
		found := table.Problems(c.config, "TRL", nil, beside)
		if len(found) != len(c.want) {
			t.Errorf("%s: %v; want %q", name, found, c.want)
			continue
		}
		for i, want := range c.want {
			path, words, _ := strings.Cut(strings.TrimPrefix(want, "~"), ": ")
			text := found[i].Summary + ". " + found[i].Detail
			if spec.PathString(found[i].Path) != path || !strings.Contains(text, words) ||
				found[i].Warning != strings.HasPrefix(want, "~") {
				t.Errorf("%s: %s: %s (warning: %t); want %q", name, spec.PathString(found[i].Path), text, found[i].Warning, want)
			}
		}
	}
	table.Extended = true
	if found := table.Problems(map[string]any{"more": true, "steps": int64(1)}, "TRL", nil, nil); len(found) != 1 {
		t.Errorf("a name of an extension: %v; want only what recipe decides", found)
	}
}

func TestEveryKindHasAWord(t *testing.T) {
	t.Parallel()
	for _, value := range []any{true, int64(1), 1.5, "x", []any{}, map[string]any{}, nil} {
		if k := kindOf(value); k.article == "" || !accepts(k.name, value) {
			t.Errorf("%v is %v", value, k)
		}
	}
	if got := words("bool|string|null"); got != "true or false or a string" {
		t.Error(got)
	}
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	if got := strings.Join(names, ", "); got != "bool, whole number, number, string, list, object, null" {
		t.Errorf("%s: recipe_sdk/trl/table.py has other names", got)
	}
}
