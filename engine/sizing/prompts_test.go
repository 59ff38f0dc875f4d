package sizing

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// An agent whose first prompt does not fit is named before anything starts.
func TestTheFirstPromptOfAnAgent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prompt, context, longest string
		want                     []string
	}{
		"it fits":              {"9700", "32768", "16384", nil},
		"the model is small":   {"9700", "8192", "", []string{"inference.x.a has a context of 8192"}},
		"the trainer takes no": {"9700", "32768", "2048", []string{"trainer.x.c takes sequences of 2048"}},
		"nothing is known":     {"", "64", "64", nil},
	} {
		facts := map[string]map[string]string{"a": {"max_model_len": c.context},
			"b": {"least_prompt_tokens": c.prompt, "least_prompt_of": "codex"}, "c": {"max_length": c.longest}}
		block := func(of kind.Kind, name string, on ...addr.Block) *schema.Block {
			b := &schema.Block{Addr: addr.Block{Kind: of, Plugin: "x", Name: name}}
			for _, a := range on {
				b.Needs = append(b.Needs, schema.Need{On: a})
			}
			return b
		}
		inference := block(kind.Inference, "a")
		environment := block(kind.Environment, "b", inference.Addr)
		trainer := block(kind.Trainer, "c", environment.Addr)
		size := func(b *schema.Block) (sdk.Estimate, []spec.Problem, error) {
			return sdk.Estimate{Facts: facts[b.Addr.Name]}, nil, nil
		}
		r := &schema.Recipe{Blocks: []*schema.Block{inference, environment, trainer}}
		found := Check(r, size, Machine{}, nil).Findings
		var got []string
		for _, f := range found {
			if strings.Contains(f.Summary, "first prompt of codex") && f.Severity == "warning" && f.Address == environment.Addr {
				got = append(got, f.Summary)
			}
		}
		if len(got) != len(c.want) || len(got) > 0 && !strings.Contains(got[0], c.want[0]) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
