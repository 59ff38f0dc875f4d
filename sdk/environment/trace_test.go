package environment_test

import (
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk/pluginpb"
)

// The span of a rollout has the prompt and a completion only when that is asked for.
func TestPromptsInSpans(t *testing.T) {
	t.Parallel()
	for _, prompts := range []string{"false", "true"} {
		_, b := setUp(t, nil, func(r *pluginpb.StartRequest) {
			r.Environment = map[string]string{"OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
				"OTEL_TRACES_SAMPLER_ARG": "1", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": prompts}
		})
		e := b.Wait("the span of a rollout", func(e *pluginpb.Event) bool { return e.GetSpan().GetName() == "rollout" })
		s := e.GetSpan()
		asked, answered := s.GetAttributes()["gen_ai.input.messages"], s.GetAttributes()["gen_ai.output.messages"]
		if has := strings.Contains(asked, `"content":"task `) && answered != ""; has != (prompts == "true") ||
			!has && asked+answered != "" {
			t.Errorf("prompts %s: asked %q, answered %q", prompts, asked, answered)
		}
		if s.GetNumbers()["recipe.completions"] < 1 || s.GetParentSpanId() != "" {
			t.Errorf("the span is %v", s)
		}
	}
}
