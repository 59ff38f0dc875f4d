package spec_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

type common struct {
	Model string `recipe:"model" required:"true" doc:"name or path" pattern:"[a-z/]+"`
}

type rule struct {
	Metric string         `recipe:"metric" required:"true"`
	Extra  map[string]any `recipe:"extra"`
}

type lora struct {
	Rank  int     `recipe:"rank" default:"16" min:"1" max:"256"`
	Alpha float64 `recipe:"alpha" default:"32"`
}

type shape struct {
	Width int    `recipe:"width" required:"true"`
	Color string `recipe:"color"`
}

type config struct {
	common
	Steps     int64             `recipe:"steps" default:"100" min:"1" unit:"optimizer steps" change:"live"`
	Rate      *float64          `recipe:"rate" min:"0"`
	Wait      time.Duration     `recipe:"wait" default:"30s" min:"1s" max:"1h"`
	Estimator string            `recipe:"estimator" default:"k3" enum:"k1,k2,k3"`
	Key       string            `recipe:"key" sensitive:"true" enum:"x"`
	Tags      []string          `recipe:"tags" default:"[\"a\"]" enum:"a,b" max:"3"`
	Weights   map[string]int    `recipe:"weights"`
	Free      any               `recipe:"free"`
	Raw       cty.Value         `recipe:"raw"`
	Mixed     map[string]any    `recipe:"mixed"`
	Shape     *shape            `recipe:"shape"`
	Policy    spec.Ref          `recipe:"policy" reference:"inference" required:"true"`
	Maybe     *spec.Ref         `recipe:"maybe" reference:"trajectories,environment"`
	Many      []spec.Ref        `recipe:"many" reference:"environment" min:"1"`
	Lora      *lora             `recipe:"lora,block"`
	Rules     []rule            `recipe:"rule,block"`
	Plain     []lora            `recipe:"plain,block"`
	Old       string            `recipe:"old" deprecated:"use model"`
	Env       map[string]string `recipe:"env"`
	Ignored   chan int
}

func schemaOf(t *testing.T, config any) *spec.Schema {
	t.Helper()
	s, err := spec.Of(config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ref(k, address string) cty.Value {
	return cty.ObjectVal(map[string]cty.Value{"address": cty.StringVal(address), "kind": cty.StringVal(k),
		"base_url": cty.StringVal("http://x/v1"),
		"model":    cty.UnknownVal(cty.String), "max_model_len": cty.NumberIntVal(7)})
}

func body(extra map[string]cty.Value) cty.Value {
	values := map[string]cty.Value{"model": cty.StringVal("org/m"), "policy": ref("inference", "inference.vllm.p")}
	for k, v := range extra {
		values[k] = v
	}
	return cty.ObjectVal(values)
}

func TestOfDescribesEveryFieldType(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	for name, want := range map[string]cty.Type{
		"model": cty.String, "steps": cty.Number, "rate": cty.Number, "wait": cty.String, "tags": cty.List(cty.String),
		"weights": cty.Map(cty.Number), "free": cty.DynamicPseudoType, "raw": cty.DynamicPseudoType,
		"mixed":  cty.DynamicPseudoType,
		"policy": cty.DynamicPseudoType, "many": cty.DynamicPseudoType,
		"shape": cty.Object(map[string]cty.Type{"width": cty.Number, "color": cty.String}),
		"lora":  cty.Object(map[string]cty.Type{"rank": cty.Number, "alpha": cty.Number}),
		"rule":  cty.DynamicPseudoType, // its objects may differ in type
		"plain": cty.List(cty.Object(map[string]cty.Type{"rank": cty.Number, "alpha": cty.Number})),
	} {
		if got := s.Type().AttributeType(name); !got.Equals(want) {
			t.Errorf("%s: type %#v, want %#v", name, got, want)
		}
	}
	if a := s.Attribute("many"); !a.List || a.References[0] != kind.Environment {
		t.Errorf("many: %+v", a)
	}
	if a := s.Attribute("wait"); *a.Min != 1 || *a.Max != 3600 || a.Format != spec.FormatDuration {
		t.Errorf("wait: %+v", a)
	}
	if s.Attribute("steps").Change != spec.ChangeLive || s.Attribute("ignored") != nil {
		t.Error("steps must change live and a field without a tag must be left out")
	}
	for i := 1; i < len(s.Attributes); i++ {
		if s.Attributes[i-1].Name >= s.Attributes[i].Name {
			t.Errorf("attributes are not sorted: %s before %s", s.Attributes[i-1].Name, s.Attributes[i].Name)
		}
	}
}

func TestOfRefusesWrongTags(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config any
		want   string
	}{
		"not a struct": {3, "expected a struct"},
		"nil":          {nil, "expected a struct"},
		"unexported": {struct {
			a string `recipe:"a"`
		}{}, "must be exported"}, //nolint:unused // the point of the case
		"channel": {struct {
			A chan int `recipe:"a"`
		}{}, "cannot be written in a recipe"},
		"map keys": {struct {
			A map[int]string `recipe:"a"`
		}{}, "string keys"},
		"option": {struct {
			A string `recipe:"a,list"`
		}{}, "expected \"name\""},
		"name": {struct {
			A string `recipe:"A-b"`
		}{}, "no valid name"},
		"twice": {struct {
			A, B string `recipe:"a"`
		}{}, "declared twice"},
		"default type": {struct {
			A int `recipe:"a" default:"x"`
		}{}, "default"},
		"default range": {struct {
			A int `recipe:"a" default:"3" max:"2"`
		}{}, "does not pass its own checks"},
		"default enum": {struct {
			A string `recipe:"a" default:"c" enum:"a,b"`
		}{}, "does not pass its own checks"},
		"min": {struct {
			A int `recipe:"a" min:"x"`
		}{}, "expected a number"},
		"min of a bool": {struct {
			A bool `recipe:"a" min:"1"`
		}{}, "min and max go with"},
		"pattern": {struct {
			A string `recipe:"a" pattern:"("`
		}{}, "pattern"},
		"enum of a number": {struct {
			A int `recipe:"a" enum:"1,2"`
		}{}, "enum and pattern"},
		"reference kind": {struct {
			A spec.Ref `recipe:"a" reference:"gpu"`
		}{}, "not a kind"},
		"reference type": {struct {
			A string `recipe:"a" reference:"trainer"`
		}{}, "spec.Ref"},
		"ref without kind": {struct {
			A spec.Ref `recipe:"a"`
		}{}, "spec.Ref"},
		"change": {struct {
			A string `recipe:"a" change:"maybe"`
		}{}, "change"},
		"environment name": {struct {
			A string `recipe:"a" environment:"AWS-KEY"`
		}{}, "not a name of an environment variable"},
		"environment live": {struct {
			A string `recipe:"a" environment:"AWS_*" change:"live"`
		}{}, "no change"},
		"required default": {struct {
			A string `recipe:"a" required:"true" default:"x"`
		}{}, "required goes with"},
		"block of strings": {struct {
			A []string `recipe:"a,block"`
		}{}, "a block must be"},
		"recursion": {node{}, "contains itself"},
		"empty object": {struct {
			A struct{} `recipe:"a"`
		}{}, "no field"},
		"reference in object": {struct {
			A struct {
				R spec.Ref `recipe:"r" reference:"sync"`
			} `recipe:"a"`
		}{}, "need the parent to be a block"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := spec.Of(c.config)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got error %v, want one that says %q", err, c.want)
			}
		})
	}
}

type node struct {
	Children []node `recipe:"child,block"`
}

func TestDecodeFillsEveryField(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	rate := 0.5
	v := s.ApplyDefaults(body(map[string]cty.Value{
		"rate": cty.StringVal("0.5"), "weights": cty.ObjectVal(map[string]cty.Value{"a": cty.NumberIntVal(2)}),
		"free": cty.TupleVal([]cty.Value{cty.NumberIntVal(1), cty.StringVal("x"), cty.NumberFloatVal(1.5)}),
		"mixed": cty.ObjectVal(map[string]cty.Value{"n": cty.NumberIntVal(4),
			"deep": cty.ObjectVal(map[string]cty.Value{"ok": cty.True})}),
		"shape": cty.ObjectVal(map[string]cty.Value{"width": cty.NumberIntVal(3)}),
		"many":  cty.TupleVal([]cty.Value{ref("environment", "environment.a.b")}),
		"lora":  cty.ObjectVal(map[string]cty.Value{"alpha": cty.NumberIntVal(8)}),
		"rule":  cty.TupleVal([]cty.Value{cty.ObjectVal(map[string]cty.Value{"metric": cty.StringVal("reward")})}),
		"key":   cty.StringVal("x").Mark("sensitive"),
	}))
	var got config
	if err := spec.Decode(v, s, &got); err != nil {
		t.Fatal(err)
	}
	want := config{common: common{Model: "org/m"}, Steps: 100, Rate: &rate, Wait: 30 * time.Second, Estimator: "k3",
		Key: "x", Tags: []string{"a"},
		Weights: map[string]int{"a": 2}, Free: []any{int64(1), "x", 1.5}, Raw: got.Raw,
		Mixed: map[string]any{"n": int64(4), "deep": map[string]any{"ok": true}},
		Shape: &shape{Width: 3}, Policy: got.Policy, Many: got.Many, Lora: &lora{Rank: 16, Alpha: 8},
		Rules: []rule{{Metric: "reward"}}, Plain: []lora{}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got.Policy.Address != "inference.vllm.p" || got.Policy.Kind != kind.Inference || got.Maybe != nil ||
		len(got.Many) != 1 {
		t.Errorf("references: %+v %+v %+v", got.Policy, got.Maybe, got.Many)
	}
	var out struct {
		BaseURL string `recipe:"base_url"`
		Model   string `recipe:"model"`
		Len     int    `recipe:"max_model_len"`
		Absent  *int   `recipe:"absent"`
	}
	if err := got.Policy.Decode(&out); err != nil || out.BaseURL != "http://x/v1" || out.Len != 7 || out.Model != "" ||
		out.Absent != nil {
		t.Errorf("Ref.Decode: %v %+v", err, out)
	}
}

// A nested block whose field is no pointer is there whatever the body has: left out, it has its defaults.
func TestABlockThatIsLeftOut(t *testing.T) {
	t.Parallel()
	type limits struct {
		Memory float64 `recipe:"memory" default:"4"`
		Tries  int64   `recipe:"tries" default:"3"`
	}
	type config struct {
		Always limits  `recipe:"always,block"`
		Maybe  *limits `recipe:"maybe,block"`
	}
	s, err := spec.Of(config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]cty.Value{"missing": cty.EmptyObjectVal, "null": cty.ObjectVal(map[string]cty.Value{
		"always": cty.NullVal(cty.DynamicPseudoType), "maybe": cty.NullVal(cty.DynamicPseudoType)})} {
		var got config
		if err := spec.Decode(s.ApplyDefaults(v), s, &got); err != nil {
			t.Fatal(err)
		}
		if got.Always != (limits{4, 3}) || got.Maybe != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDecodeErrorsNameThePath(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	for name, c := range map[string]struct {
		v    cty.Value
		want string
	}{
		"unknown": {body(map[string]cty.Value{"estimator": cty.UnknownVal(cty.String)}),
			"estimator: the value is not known yet"},
		"type": {body(map[string]cty.Value{"steps": cty.StringVal("many")}), "steps: expected number"},
		"fraction": {body(map[string]cty.Value{"steps": cty.NumberFloatVal(1.5)}),
			"steps: expected a whole number"},
		"duration": {body(map[string]cty.Value{"wait": cty.StringVal("soon")}), "wait: expected a duration"},
		"nested": {body(map[string]cty.Value{"plain": cty.TupleVal(
			[]cty.Value{cty.ObjectVal(map[string]cty.Value{"rank": cty.True})})}), "plain[0].rank"},
		"not a block":   {body(map[string]cty.Value{"policy": cty.StringVal("x")}), "policy: expected a block"},
		"extra":         {body(map[string]cty.Value{"nope": cty.True}), "no attribute \"nope\""},
		"not an object": {cty.StringVal("x"), "expected an object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got config
			if err := spec.Decode(c.v, s, &got); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if err := spec.Decode(body(nil), s, config{}); err == nil {
		t.Error("Decode into a struct that is no pointer must fail")
	}
}

func TestCheckFindsEveryProblem(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	secret := cty.StringVal("hunter2")
	for name, c := range map[string]struct {
		extra map[string]cty.Value
		want  []string // each problem: path, then a part of summary or detail
	}{
		"fine":           {nil, nil},
		"unknown passes": {map[string]cty.Value{"policy": cty.DynamicVal, "steps": cty.UnknownVal(cty.Number)}, nil},
		"missing":        {map[string]cty.Value{"model": cty.NullVal(cty.String)}, []string{"model|required"}},
		"range": {map[string]cty.Value{"steps": cty.NumberIntVal(0)},
			[]string{"steps|at least 1 optimizer steps; got 0"}},
		"whole number": {map[string]cty.Value{"steps": cty.NumberFloatVal(1.5)},
			[]string{"steps|Not a whole number"}},
		"enum": {map[string]cty.Value{"estimator": cty.StringVal("k4")},
			[]string{"estimator|one of \"k1\", \"k2\", \"k3\"; got \"k4\""}},
		"enum in list": {map[string]cty.Value{"tags": cty.TupleVal([]cty.Value{cty.StringVal("z")})},
			[]string{"tags[0]|got \"z\""}},
		"length":   {map[string]cty.Value{"many": cty.EmptyTupleVal}, []string{"many|got 0 elements"}},
		"pattern":  {map[string]cty.Value{"model": cty.StringVal("A")}, []string{"model|matches [a-z/]+"}},
		"duration": {map[string]cty.Value{"wait": cty.StringVal("later")}, []string{"wait|Not a duration"}},
		"duration range": {map[string]cty.Value{"wait": cty.StringVal("2h")},
			[]string{"wait|from 1 to 3600 seconds"}},
		"type": {map[string]cty.Value{"steps": cty.TupleVal(nil)},
			[]string{"steps|expects a whole number"}},
		"kind": {map[string]cty.Value{"policy": ref("trainer", "trainer.grpo.p")},
			[]string{"policy|expects an inference block; got trainer.grpo.p, a trainer block"}},
		"kind in list": {map[string]cty.Value{"many": cty.TupleVal([]cty.Value{ref("trainer", "trainer.grpo.p")})},
			[]string{"many[0]|trainer.grpo.p"}},
		"not a list": {map[string]cty.Value{"many": ref("environment", "environment.a.b")},
			[]string{"many|brackets"}},
		"map expected": {map[string]cty.Value{"mixed": cty.TupleVal(nil)}, []string{"mixed|expects a map"}},
		"nested": {map[string]cty.Value{"lora": cty.ObjectVal(map[string]cty.Value{"rank": cty.NumberIntVal(999)})},
			[]string{"lora.rank|from 1 to 256"}},
		"nested missing": {map[string]cty.Value{"rule": cty.TupleVal([]cty.Value{cty.EmptyObjectVal})},
			[]string{"rule[0].metric|required"}},
		"unknown name":     {map[string]cty.Value{"nope": cty.True}, []string{"nope|no attribute"}},
		"sensitive hidden": {map[string]cty.Value{"key": secret}, []string{"key|not shown"}},
		"marked hidden": {map[string]cty.Value{"estimator": secret.Mark("sensitive")},
			[]string{"estimator|not shown"}},
		"several at once": {map[string]cty.Value{"steps": cty.NumberIntVal(0), "estimator": cty.StringVal("x"),
			"model": cty.StringVal("")},
			[]string{"estimator|", "model|", "steps|"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := s.Check(body(c.extra))
			if len(problems) != len(c.want) {
				t.Fatalf("got %d problems %+v, want %d", len(problems), problems, len(c.want))
			}
			for i, p := range problems {
				path, part, _ := strings.Cut(c.want[i], "|")
				if got := spec.PathString(p.Path); got != path || !strings.Contains(p.Summary+": "+p.Detail, part) {
					t.Errorf("problem %d: %s: %s: %s, want %s with %q", i, got, p.Summary, p.Detail, path, part)
				}
				if strings.Contains(p.Detail, "hunter2") {
					t.Error("a sensitive value is shown")
				}
			}
		})
	}
}

func TestSchemaJSONRoundTripIsStable(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	first, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	back, err := spec.Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	second, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Errorf("round trip changed the schema:\n%s\n%s", first, second)
	}
	if !reflect.DeepEqual(s, back) {
		t.Error("round trip changed the schema in memory")
	}
	var viaJSON spec.Schema
	if err := json.Unmarshal(first, &viaJSON); err != nil ||
		viaJSON.Attribute("steps").Default.AsBigFloat().String() != "100" {
		t.Errorf("encoding/json alone must read it too: %v", err)
	}
}

func TestPathRoundTrip(t *testing.T) {
	t.Parallel()
	path := cty.GetAttrPath("a").IndexInt(3).GetAttr("b")
	data, err := spec.MarshalPath(path)
	if err != nil || string(data) != `["a",3,"b"]` {
		t.Fatalf("%s %v", data, err)
	}
	back, err := spec.UnmarshalPath(data)
	if err != nil || !back.Equals(path) {
		t.Fatalf("%v %v", back, err)
	}
	if got := spec.PathString(path.IndexString("x y")); got != `a[3].b["x y"]` {
		t.Error(got)
	}
	if _, err := spec.UnmarshalPath([]byte(`[{}]`)); err == nil {
		t.Error("an object is no step")
	}
}

func TestDocumentsNameEveryAttribute(t *testing.T) {
	t.Parallel()
	s := schemaOf(t, config{})
	md := spec.Markdown(s)
	js, err := json.Marshal(spec.JSONSchema(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range s.Attributes {
		if !strings.Contains(md, "| `"+a.Name+"` |") || !strings.Contains(string(js), `"`+a.Name+`":`) {
			t.Errorf("%s is missing in Markdown or JSON schema", a.Name)
		}
	}
	for _, want := range []string{"Block `lora { … }` (at most one)", "Block `rule { … }` (any number)",
		"in optimizer steps", "from 1 to 256", "**deprecated**: use model"} {
		if !strings.Contains(md, want) {
			t.Errorf("Markdown lacks %q:\n%s", want, md)
		}
	}
	for _, want := range []string{`"minimum":1`, `"type":"integer"`, `"enum":["k1","k2","k3"]`,
		`"x-recipe-references":["inference"]`, `"required":["model","policy"]`} {
		if !strings.Contains(string(js), want) {
			t.Errorf("JSON schema lacks %s:\n%s", want, js)
		}
	}
}
