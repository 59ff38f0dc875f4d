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
