package sizing_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

func TestWhatAnExternalServerLacks(t *testing.T) {
	t.Parallel()
	const noModel, noTokenizer, noTokens = "names no model", "names no tokenizer", "has no token ids"
	renders := func(more ...string) sdk.Estimate { return facts(append([]string{"renders_chat", "true"}, more...)...) }
	for name, c := range map[string]struct {
		environment sdk.Estimate
		sets        map[string]cty.Value
		want        []string
	}{
		"nothing said":        {renders("generate", "vllm"), nil, []string{noModel, noTokens}},
		"a served name":       {renders("generate", "vllm"), given("model", "policy"), []string{noTokenizer, noTokens}},
		"a name of the hub":   {renders("generate", "vllm"), given("model", "owner/name"), []string{noTokens}},
		"its own tokenizer":   {renders("generate", "vllm", "tokenizer", "a"), given("model", "policy"), []string{noTokens}},
		"a tokenizer":         {renders("generate", "vllm"), given("model", "policy", "tokenizer", "a"), []string{noTokens}},
		"SGLang":              {renders("generate", "sglang"), given("model", "policy", "tokenizer", "a"), nil},
		"a gateway":           {renders("generate", "vllm"), given("model", "policy", "control_url", "http://a"), nil},
		"a gateway's address": {renders("generate", "vllm"), given("model", "a/b", "generate_url", "http://a"), nil},
		"known when it runs": {renders("generate", "sglang"),
			map[string]cty.Value{"model": cty.UnknownVal(cty.String)}, nil},
		"sends text": {facts("renders_chat", "false"), nil, nil},
	} {
		server, environment := addr.Block{Kind: kind.Inference, Plugin: "x", Name: "a"},
			addr.Block{Kind: kind.Environment, Plugin: "x", Name: "a"}
		at := hcl.Range{Filename: "a.hcl", Start: hcl.Pos{Line: 7}}
		external := &schema.Block{Addr: server}
		external.Meta.External = &decode.External{Values: c.sets}
		r := &schema.Recipe{Blocks: []*schema.Block{external,
			{Addr: environment, Needs: []schema.Need{{On: server, Condition: schema.Healthy, Range: at}}}}}
		found := sizing.Check(r, func(b *schema.Block) (sdk.Estimate, []spec.Problem, error) {
			return c.environment, nil, nil
		}, sizing.Machine{}, nil).Findings
		if len(found) != len(c.want) {
			t.Errorf("%s: %d findings (%v), want %d", name, len(found), found, len(c.want))
			continue
		}
		for i, f := range found {
			if f.Severity != "error" || !strings.Contains(f.Summary, c.want[i]) || f.Range == nil || f.Range.Start.Line != 7 {
				t.Errorf("%s: %+v, want an error in line 7 with %q", name, f, c.want[i])
			}
		}
	}
}

func given(kv ...string) map[string]cty.Value {
	values := map[string]cty.Value{}
	for i := 0; i < len(kv); i += 2 {
		values[kv[i]] = cty.StringVal(kv[i+1])
	}
	return values
}
