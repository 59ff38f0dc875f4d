package sizing_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/sizing"
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// TestTeachers: a trainer that asks an inference block for log-probabilities.
//
//docs:distillation.md what a plan refuses of a teacher
func TestTeachers(t *testing.T) {
	t.Parallel()
	at := func(k kind.Kind, name string) addr.Block { return addr.Block{Kind: k, Plugin: "x", Name: name} }
	trainer, policy, teacher := at(kind.Trainer, "a"), at(kind.Inference, "policy"), at(kind.Inference, "teacher")
	for _, test := range []struct {
		name                         string
		asked                        addr.Block
		trains, serves, environments sdk.Estimate
		want                         string // of the one error; "": there is none
	}{
		{"the name of the policy's model", policy, facts("teacher", ""), facts(), facts("temperature", "0.7"), ""},
		{"a fixed teacher", teacher, facts("max_length", "64"), facts("max_model_len", "65"), facts("temperature", "1"), ""},
		{"the policy itself", policy, facts(), facts(), facts(), "sync.x.a updates its weights"},
		{"too short a context", teacher, facts("max_length", "64"), facts("max_model_len", "64"), facts(),
			"sequences of up to 64 tokens"},
		{"no prompts", teacher, facts(), facts("prompt_logprobs", "false"), facts(), "no log-probabilities of prompts"},
		{"warm samples", teacher, facts("logprobs_mode", "processed"), facts(), facts("temperature", "0.7"),
			"at temperature 1, not at 0.7"},
		{"warm samples, raw", teacher, facts("logprobs_mode", "raw"), facts(), facts("temperature", "0.7"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			need := func(on ...addr.Block) (out []schema.Need) {
				for _, a := range on {
					out = append(out, schema.Need{On: a, Condition: schema.Healthy})
				}
				return out
			}
			if _, given := test.trains.Facts["teacher"]; !given {
				test.trains.Facts["teacher"] = test.asked.String()
			}
			estimates := map[addr.Block]sdk.Estimate{trainer: test.trains, teacher: test.serves,
				at(kind.Environment, "a"): test.environments}
			r := &schema.Recipe{Blocks: []*schema.Block{
				{Addr: at(kind.Environment, "a"), Needs: need(policy)}, {Addr: policy}, {Addr: teacher},
				{Addr: at(kind.Sync, "a"), Needs: need(trainer, policy)},
				{Addr: trainer, Needs: need(at(kind.Environment, "a"), test.asked)},
			}}
			found := sizing.Check(r, func(b *schema.Block) (sdk.Estimate, []spec.Problem, error) {
				return estimates[b.Addr], nil, nil
			}, sizing.Machine{}, nil).Findings
			var errors []string
			for _, f := range found {
				if f.Severity == "error" {
					errors = append(errors, f.Summary)
				}
			}
			if got := strings.Join(errors, "\n"); len(errors) > 1 || (test.want == "") != (got == "") ||
				!strings.Contains(got, test.want) {
				t.Errorf("errors: %q, want one of %q", got, test.want)
			}
		})
	}
}
