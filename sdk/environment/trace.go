package environment

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/recipe-rl/recipe/sdk/trace"
)

// tracedText bounds a prompt or a completion in a span, in bytes.
const tracedText = 4096

// traced begins the trace of a group: requests to inference and the post carry it on.
func (r *rollouts) traced(ctx, working context.Context) (_, _ context.Context, span *trace.Ongoing) {
	ctx, span = r.recorder.Root(ctx, "rollout")
	return ctx, trace.Carry(ctx, working), span
}

// traceEnd ends the trace's first span with what became of the group.
func (r *rollouts) traceEnd(span *trace.Ongoing, task Task, made *rolled, err error) {
	if span == nil {
		return
	}
	span.Set("recipe.environment", r.name)
	if made != nil {
		total, sampled := 0.0, 0
		for i := range made.sequences {
			s := &made.sequences[i]
			if sampled += s.sampled; !s.part {
				total += s.score
			}
		}
		n := float64(made.rollouts())
		span.SetNumber("recipe.completions", n)
		span.SetNumber("recipe.reward", total/max(n, 1))
		span.SetNumber("gen_ai.usage.output_tokens", float64(sampled))
	}
	if span.Content() {
		r.content(span, task, made)
	}
	span.End(err)
}

// content adds the prompt and the first completion.
func (r *rollouts) content(span *trace.Ongoing, task Task, made *rolled) {
	if asked, err := json.Marshal(task.conversation()); err == nil {
		span.Set("gen_ai.input.messages", cut(string(asked)))
	}
	if made != nil && len(made.sequences) > 0 {
		span.Set("gen_ai.output.messages", cut(made.sequences[0].text))
	}
}

func cut(s string) string {
	if len(s) <= tracedText {
		return s
	}
	return strings.ToValidUTF8(s[:tracedText], "") + " …"
}
