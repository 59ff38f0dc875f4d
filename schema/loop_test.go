package schema_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/schema"
)

// TestWeightsThatReachNoInference: a trainer whose weights nobody takes to where its environments sample learns from
// ever older samples, without an error.
func TestWeightsThatReachNoInference(t *testing.T) {
	t.Parallel()
	const (
		policy   = "inference \"vllm\" \"policy\" {\n  model = \"m\"\n}\n"
		other    = "inference \"vllm\" \"other\" {\n  model = \"m\"\n}\n"
		math     = "environment \"atropos\" \"math\" {\n  inference = inference.vllm.policy\n}\n"
		external = "  external {\n    endpoint = \"https://example.org\"\n  }\n"
		synced   = "sync \"weights\" \"policy\" {\n  trainer = trainer.grpo.policy\n" +
			"  inference = [inference.vllm.policy]\n}\n"
	)
	trainer := func(name string, after ...string) string {
		text := "trainer \"grpo\" \"" + name + "\" {\n  model = \"m\"\n  steps = 1\n" +
			"  environments = [environment.atropos.math]\n"
		for _, a := range after {
			text += "  depends_on = [{ block = trainer.grpo." + a + ", condition = \"completed\" }]\n"
		}
		return text + "}\n"
	}
	for name, c := range map[string]struct {
		recipe string
		want   []string // parts of the warning; none: no warning
	}{
		"no sync block": {policy + math + trainer("policy"), []string{
			"takes the weights of trainer.grpo.policy to inference.vllm.policy", "environment.atropos.math samples",
			"trainer = trainer.grpo.policy and inference = [inference.vllm.policy], unless"}},
		"of another trainer": {policy + math + trainer("policy") + trainer("other", "policy") + synced,
			[]string{"takes the weights of trainer.grpo.other"}},
		"several": {policy + math + trainer("a") + trainer("b", "a") + trainer("c", "b"),
			[]string{"takes the weights of trainer.grpo.a", "The same is true of 2 more."}},
		"to another inference block": {policy + math + trainer("policy") + other +
			strings.ReplaceAll(synced, "vllm.policy", "vllm.other"), []string{
			"weights of trainer.grpo.policy to inference.vllm.policy"}},
		"a sync block": {policy + math + trainer("policy") + synced, nil},
		"a server that recipe does not run": {
			strings.Replace(policy, "}\n", external+"}\n", 1) + math + trainer("policy"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, diags := schema.LoadSource("x.hcl", []byte(c.recipe), schema.Options{Plugins: fakePlugins(t)})
			if diags.HasErrors() || len(diags) != min(1, len(c.want)) {
				t.Fatalf("got %v", diags)
			}
			for _, part := range c.want {
				if d := diags[0]; d.Summary != "Weights that reach no inference" || !strings.Contains(d.Detail, part) {
					t.Errorf("%s: %s\nlacks %q", d.Summary, d.Detail, part)
				}
			}
		})
	}
}
