package evaluation_test

import (
	"testing"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// TestScoresOfOtherFilesAreOthers: a changed reward function or dataset is another evaluation, as an attribute is.
func TestScoresOfOtherFilesAreOthers(t *testing.T) {
	t.Parallel()
	schema := &spec.Schema{Attributes: []*spec.Attribute{{Name: "function", Type: cty.String}}}
	body := cty.ObjectVal(map[string]cty.Value{"function": cty.StringVal("rewards.py:score")})
	other := cty.ObjectVal(map[string]cty.Value{"function": cty.StringVal("rewards.py:other")})
	file := func(digest string) []decode.Content {
		return []decode.Content{{Attribute: "function", File: "rewards.py", Digest: digest}}
	}
	seen := map[string]string{}
	for name, c := range map[string]struct {
		schema string
		files  []decode.Content
		body   cty.Value
	}{
		"one":              {schema: "a", files: file("sha256:1"), body: body},
		"another file":     {schema: "a", files: file("sha256:2"), body: body},
		"another function": {schema: "a", files: file("sha256:1"), body: other},
		"another plugin":   {schema: "b", files: file("sha256:1"), body: body},
	} {
		digest, err := evaluation.Settings(schema, c.schema, c.files, c.body)
		again, _ := evaluation.Settings(schema, c.schema, c.files, c.body)
		if err != nil || digest != again || seen[digest] != "" {
			t.Errorf("%s: %q, then %q, %v; as of %q", name, digest, again, err, seen[digest])
		}
		seen[digest] = name
	}
}

// TestScoresOfOtherBlocksAreOthers: reward functions that stand in blocks count with their weights.
func TestScoresOfOtherBlocksAreOthers(t *testing.T) {
	t.Parallel()
	nested := &spec.Schema{Attributes: []*spec.Attribute{{Name: "function", Type: cty.String},
		{Name: "weight", Type: cty.Number}}}
	schema := &spec.Schema{Blocks: []*spec.Block{{Name: "functions", Schema: nested}}}
	one := func(function string, weight float64) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{"function": cty.StringVal(function), "weight": cty.NumberFloatVal(weight)})
	}
	of := func(v cty.Value) cty.Value { return cty.ObjectVal(map[string]cty.Value{"functions": v}) }
	none := cty.ListValEmpty(one("", 1).Type())
	seen := map[string]string{}
	for name, body := range map[string]cty.Value{
		"none":             of(none),
		"one":              of(cty.ListVal([]cty.Value{one("r.py:a@sha256:1", 1)})),
		"another content":  of(cty.ListVal([]cty.Value{one("r.py:a@sha256:2", 1)})),
		"another weight":   of(cty.ListVal([]cty.Value{one("r.py:a@sha256:1", 2)})),
		"two":              of(cty.ListVal([]cty.Value{one("r.py:a@sha256:1", 1), one("r.py:b@sha256:1", 1)})),
		"two, as in Value": of(cty.TupleVal([]cty.Value{one("r.py:b@sha256:1", 1), one("r.py:a@sha256:1", 1)})),
	} {
		digest, err := evaluation.Settings(schema, "s", nil, body)
		if err != nil || seen[digest] != "" {
			t.Errorf("%s: %q, %v; as of %q", name, digest, err, seen[digest])
		}
		seen[digest] = name
	}
	without, err := evaluation.Settings(&spec.Schema{}, "s", nil, cty.EmptyObjectVal)
	if err != nil || seen[without] != "none" {
		t.Errorf("a block that is not set counts: %v", err)
	}
}
