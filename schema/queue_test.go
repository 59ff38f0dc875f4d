package schema_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
)

// TestTrainersOnOneQueue: a trajectories block does not know which trainer a group is for.
func TestTrainersOnOneQueue(t *testing.T) {
	t.Parallel()
	const sweep = `
locals { rates = toset(["a", "b"]) }
inference "vllm" "policy" {
  for_each = local.rates
  model    = "m"
}
trajectories "builtin" "queue" { for_each = local.rates }
environment "atropos" "math" {
  for_each     = local.rates
  inference    = inference.vllm.policy[each.key]
  trajectories = trajectories.builtin.queue[each.key]
}
trainer "grpo" "sweep" {
  for_each     = local.rates
  model        = "m"
  steps        = 1
  environments = [environment.atropos.math[each.key]]
  trajectories = trajectories.builtin.queue[each.key]
}
sync "weights" "sweep" {
  for_each     = local.rates
  trainer      = trainer.grpo.sweep[each.key]
  inference    = [inference.vllm.policy[each.key]]
  trajectories = trajectories.builtin.queue[each.key]
}
`
	shared := strings.ReplaceAll(strings.ReplaceAll(sweep,
		"  trajectories = trajectories.builtin.queue[each.key]\n", ""),
		"trajectories \"builtin\" \"queue\" { for_each = local.rates }\n", "")
	const later = `
environment "atropos" "more" { inference = inference.vllm.policy["a"] }
trainer "grpo" "later" {
  model        = "m"
  steps        = 1
  environments = [environment.atropos.more]
  AFTER
}
sync "weights" "later" {
  trainer   = trainer.grpo.later
  inference = [inference.vllm.policy["a"]]
}
`
	one := strings.ReplaceAll(shared, `["a", "b"]`, `["a"]`)
	after := func(text string) string { return strings.Replace(later, "AFTER", "depends_on = ["+text+"]", 1) }
	for name, c := range map[string]struct{ recipe, summary, detail string }{
		"each its own": {recipe: sweep},
		"one shared": {shared, "Two trainers on one queue", `trainer.grpo.sweep["a"] and trainer.grpo.sweep["b"] take ` +
			`groups from trajectories.builtin.default at the same time`},
		"half of it": {strings.Replace(sweep, "queue[each.key]\n}\ntrainer", "queue[\"a\"]\n}\ntrainer", 1),
			"Environment on another queue", `environment.atropos.math["b"] posts its groups to ` +
				`trajectories.builtin.queue["a"], and trainer.grpo.sweep["b"] takes them from ` +
				`trajectories.builtin.queue["b"]`},
		"one after another": {recipe: one + after(`{ block = trainer.grpo.sweep["a"], condition = "completed" }`)},
		"one beside another": {one + after(`trainer.grpo.sweep["a"]`), "Two trainers on one queue",
			`condition = "completed"`},
		"after what comes after it": {recipe: one + after(`environment.atropos.last`) + `
environment "atropos" "last" {
  inference  = inference.vllm.policy["a"]
  depends_on = [{ block = trainer.grpo.sweep["a"], condition = "completed" }]
}
`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := schema.LoadSource("x.hcl", []byte(c.recipe), schema.Options{Plugins: fakePlugins(t)})
			if c.summary == "" {
				if diags.HasErrors() {
					t.Fatal(diags)
				}
				return
			}
			if len(diags.Errs()) == 0 || diags[0].Summary != c.summary || !strings.Contains(diags[0].Detail, c.detail) {
				t.Fatalf("got %v", diags)
			}
		})
	}
}
