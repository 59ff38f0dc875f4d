package spec_test

import (
	"slices"
	"testing"

	"github.com/zclconf/go-cty/cty"
)

func TestEnvironmentNamesWhatTheBodyNeeds(t *testing.T) {
	t.Parallel()
	type nested struct {
		Store string `recipe:"store" environment:"AWS_*"`
		Every int64  `recipe:"every"`
	}
	s := schemaOf(t, struct {
		Judge string   `recipe:"judge" environment:"JUDGE_KEY,JUDGE_URL"`
		Keep  *nested  `recipe:"keep,block"`
		Rules []nested `recipe:"rule,block"`
	}{})
	keep := func(store cty.Value) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{"store": store, "every": cty.NumberIntVal(1)})
	}
	for name, c := range map[string]struct {
		body cty.Value
		want []string
	}{
		"no body": {cty.NilVal, nil},
		"nothing": {cty.EmptyObjectVal, nil},
		"null and empty": {cty.ObjectVal(map[string]cty.Value{"judge": cty.NullVal(cty.String),
			"keep": keep(cty.StringVal(""))}), nil},
		"an attribute": {cty.ObjectVal(map[string]cty.Value{"judge": cty.StringVal("x")}),
			[]string{"JUDGE_KEY", "JUDGE_URL"}},
		"of a nested block": {cty.ObjectVal(map[string]cty.Value{"keep": keep(cty.StringVal("s3://b"))}), []string{"AWS_*"}},
		"a sensitive one": {cty.ObjectVal(map[string]cty.Value{"keep": keep(cty.StringVal("s3://b").Mark("secret"))}),
			[]string{"AWS_*"}},
		"of one of several blocks": {cty.ObjectVal(map[string]cty.Value{"rule": cty.TupleVal([]cty.Value{
			keep(cty.NullVal(cty.String)), keep(cty.StringVal("s3://b"))})}), []string{"AWS_*"}},
		"not known yet": {cty.ObjectVal(map[string]cty.Value{"keep": keep(cty.UnknownVal(cty.String))}),
			[]string{"AWS_*"}},
		"blocks not known yet": {cty.ObjectVal(map[string]cty.Value{"rule": cty.DynamicVal}), []string{"AWS_*"}},
		"nothing known yet":    {cty.DynamicVal, []string{"AWS_*", "JUDGE_KEY", "JUDGE_URL"}},
	} {
		if got := s.Environment(c.body); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
