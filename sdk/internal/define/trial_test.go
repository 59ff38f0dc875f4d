package define_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// judged is a configuration whose validator makes every kind of comparison.
type judged struct {
	Model     string        `recipe:"model" required:"true"`
	Transport string        `recipe:"transport" default:"auto"`
	Script    string        `recipe:"script"`
	Module    string        `recipe:"module"`
	Small     int64         `recipe:"small" min:"0"`
	Large     int64         `recipe:"large" default:"64"`
	Ports     []int64       `recipe:"ports"`
	Wait      time.Duration `recipe:"wait" default:"1s"`
	Policy    *spec.Ref     `recipe:"policy" reference:"inference"`
	Lora      *judgedLora   `recipe:"lora,block"`
	Rules     []judgedRule  `recipe:"rule,block"`
	Source    string        `recipe:"source" enum:"copy,lora_off" default:"copy"`
}

type judgedLora struct {
	Rank int64 `recipe:"rank" required:"true"`
}

type judgedRule struct {
	Name string `recipe:"name" required:"true"`
}

type judge struct{}

func (judge) Run(context.Context, sdk.Request[judged], sdk.Host) error { return nil }

func (judge) Validate(c judged) []spec.Problem {
	var out []spec.Problem
	add := func(path cty.Path, summary string) { out = append(out, spec.Problem{Path: path, Summary: summary}) }
	if c.Transport != "auto" && c.Transport != "reload" {
		add(cty.GetAttrPath("transport"), "transport")
	}
	if (c.Script == "") == (c.Module == "") {
		add(cty.GetAttrPath("script"), "script or module")
	}
	if c.Small > c.Large {
		add(nil, "small is above large")
	}
	for i, port := range c.Ports {
		if port == 1 {
			add(cty.GetAttrPath("ports").IndexInt(i), fmt.Sprintf("port %d", port))
		}
	}
	if c.Source == "lora_off" && c.Lora == nil {
		add(cty.GetAttrPath("source"), "no lora")
	}
	if c.Lora != nil && c.Lora.Rank == 3 {
		add(cty.GetAttrPath("lora").GetAttr("rank"), "rank")
	}
	for i, r := range c.Rules {
		if r.Name == "bad" {
			add(cty.GetAttrPath("rule").IndexInt(i).GetAttr("name"), "rule")
		}
	}
	if c.Model == "panic" || c.Model == "x" {
		panic("a validator that cannot stand this model")
	}
	return out
}

// TestSummariesHaveNoFullStop: authors write them with and without one, and they stand in one table.
func TestSummariesHaveNoFullStop(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{"Counts words.": "Counts words", " Counts words": "Counts words"} {
		if def := environment.New("judge", given, func() sdk.Service[judged] { return judge{} }); def.Summary != want {
			t.Errorf("the summary %q became %q, want %q", given, def.Summary, want)
		}
	}
}

// TestValidateWithUnknownValues: errors that do not depend on the unknown values are found, and no others.
func TestValidateWithUnknownValues(t *testing.T) {
	t.Parallel()
	def := environment.New("judge", "", func() sdk.Service[judged] { return judge{} })
	str, num := cty.UnknownVal(cty.String), cty.UnknownVal(cty.Number)
	lora := def.Schema.Block("lora").Type()
	for name, c := range map[string]struct {
		set  map[string]cty.Value
		want []string
	}{
		"nothing unknown": {set: map[string]cty.Value{"transport": cty.StringVal("pigeon")},
			want: []string{"transport"}},
		"beside an unknown one": {set: map[string]cty.Value{"transport": cty.StringVal("pigeon"),
			"module": str, "small": num}, want: []string{"transport"}},
		"the value itself is unknown": {set: map[string]cty.Value{"transport": str}},
		"either of two":               {set: map[string]cty.Value{"module": str, "script": str}},
		"one of two is known":         {set: map[string]cty.Value{"module": str, "script": cty.StringVal("s")}},
		"both are known": {set: map[string]cty.Value{"module": cty.StringVal("m"),
			"script": cty.StringVal("s"), "small": num}, want: []string{"script or module"}},
		"a comparison of two unknown": {set: map[string]cty.Value{"small": num, "large": num}},
		"a comparison with one unknown": {set: map[string]cty.Value{"small": cty.NumberIntVal(1000),
			"large": num}},
		"an element of a list": {set: map[string]cty.Value{"ports": cty.ListVal([]cty.Value{num,
			cty.NumberIntVal(1)})}, want: []string{"port 1"}},
		"a list": {set: map[string]cty.Value{"ports": cty.UnknownVal(cty.List(cty.Number)),
			"transport": cty.StringVal("p")}, want: []string{"transport"}},
		"a block that may be there": {set: map[string]cty.Value{"source": cty.StringVal("lora_off"),
			"lora": cty.UnknownVal(lora)}},
		"a block that is not there": {set: map[string]cty.Value{"source": cty.StringVal("lora_off"),
			"small": num}, want: []string{"no lora"}},
		"a block with an unknown attribute": {set: map[string]cty.Value{"source": cty.StringVal("lora_off"),
			"lora": cty.ObjectVal(map[string]cty.Value{"rank": num})}},
		"a block with a known attribute": {set: map[string]cty.Value{"small": num,
			"lora": cty.ObjectVal(map[string]cty.Value{"rank": cty.NumberIntVal(3)})}, want: []string{"rank"}},
		"the second of two repeated blocks": {set: map[string]cty.Value{"rule": rules(str, cty.StringVal("bad"))},
			want: []string{"rule"}},
		"any number of repeated blocks": {set: map[string]cty.Value{"rule": cty.UnknownVal(def.Schema.Block("rule").Type())}},
		"an enum that decides":          {set: map[string]cty.Value{"source": str}},
		"a duration": {set: map[string]cty.Value{"wait": str, "transport": cty.StringVal("p")},
			want: []string{"transport"}},
		"a reference": {set: map[string]cty.Value{"policy": cty.DynamicVal,
			"transport": cty.StringVal("p")}, want: []string{"transport"}},
		"an output behind a reference": {set: map[string]cty.Value{"policy": reference(str),
			"transport": cty.StringVal("p")}, want: []string{"transport"}},
		"a made-up value makes it panic": {set: map[string]cty.Value{"model": str,
			"transport": cty.StringVal("p")}},
		"everything that was wrong is known": {set: map[string]cty.Value{"transport": cty.StringVal("p").Mark("sensitive"),
			"small": num}, want: []string{"transport"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := map[string]cty.Value{"model": cty.StringVal("m"), "script": cty.StringVal("s")}
			for k, v := range c.set {
				set[k] = v
			}
			if _, ok := c.set["module"]; ok && c.set["script"] == cty.NilVal {
				set["script"] = cty.NullVal(cty.String)
			}
			config, err := def.Schema.Conform(cty.ObjectVal(set))
			if err != nil {
				t.Fatal(err)
			}
			problems, err := def.Validate(config)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.Summary)
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func rules(names ...cty.Value) cty.Value {
	var out []cty.Value
	for _, n := range names {
		out = append(out, cty.ObjectVal(map[string]cty.Value{"name": n}))
	}
	return cty.ListVal(out)
}

func reference(url cty.Value) cty.Value {
	return cty.ObjectVal(map[string]cty.Value{"address": cty.StringVal("inference.x.p"),
		"kind": cty.StringVal("inference"), "base_url": url})
}
