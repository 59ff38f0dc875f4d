package atropos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/trace"
)

// event is one line that the launcher writes.
type event struct {
	Event      string             `json:"event"`
	Name       string             `json:"name"`
	EnvID      *int64             `json:"env_id"`
	Step       int64              `json:"step"`
	Queue      int64              `json:"queue"`
	Workers    int64              `json:"workers"`
	Scores     []float64          `json:"scores"`
	Lengths    []float64          `json:"lengths"`
	Same       bool               `json:"same"`
	Long       bool               `json:"long"`
	Metrics    map[string]float64 `json:"metrics"`
	Prompt     string             `json:"prompt"`
	Completion string             `json:"completion"`
	Score      float64            `json:"score"`
	Rollouts   int64              `json:"rollouts"`
	InARow     int64              `json:"in_a_row"`
	Own        int64              `json:"own"`  // of those: not because a server was away
	Away       bool               `json:"away"` // the trajectory API did not answer, or not about the group
	Doing      string             `json:"doing"`
	Groups     int64              `json:"groups"`
	Answers    int64              `json:"answers"`
	Fields     jsonAny            `json:"fields"`
	Error      string             `json:"error"`
	Time       float64            `json:"time"` // seconds since 1970
	Seconds    float64            `json:"seconds"`
	TraceID    string             `json:"trace_id"`
	SpanID     string             `json:"span_id"`
	Field      string             `json:"field"`
	Wanted     any                `json:"wanted"`
	Got        any                `json:"got"`
}

// jsonAny keeps a value whose shape depends on the event.
type jsonAny struct{ data []byte }

// UnmarshalJSON keeps the text.
func (j *jsonAny) UnmarshalJSON(data []byte) error {
	j.data = slices.Clone(data)
	return nil
}

// take turns an event into what the host is told. An error ends the process: nothing can come of it.
func (p *process) take(ctx context.Context, e event) error {
	p.team.doing.take(p.index, e)
	switch e.Event {
	case "class":
		p.host.Phase(sdk.Starting, "setting up "+e.Name)
	case "waiting", "registered":
		p.registered(e)
	case "poll":
		p.polled(e.Step)
	case "group":
		p.team.add(e)
		p.team.well(p.index, rolloutsFail, rolloutsEmpty)
		p.made = true
	case "posted":
		p.team.posted(p.index, e.Groups)
	case "post-failed":
		return p.postFailed(e)
	case "odd-group":
		p.host.Log("warn", "a scored group could not be looked at, so it is in no metric: "+e.Error)
	case "sample":
		p.host.Sample(
			sdk.Sample{
				Environment: p.name,
				Prompt:      e.Prompt,
				Completion:  e.Completion,
				Score:       e.Score,
				Version:     p.version(ctx),
			},
		)
	case "span":
		p.host.Span(e.span(p.name))
	case "metrics":
		p.host.Metrics(e.Step, e.Metrics)
	case "evaluation":
		p.evaluation(ctx, e)
	case "replaced":
		p.host.Log("warn", fmt.Sprintf("the environment replaced its setting %s = %v by %v", e.Field, e.Wanted, e.Got))
	case "rollout-failed":
		text := fmt.Sprintf(
			"%s failed so far, the last one in %s with %s",
			plural(e.Rollouts, "rollout has", "rollouts have"),
			e.Doing,
			e.Error,
		)
		p.host.Log("warn", text)
		if e.InARow >= manyFailures {
			p.team.trouble(
				p.index,
				rolloutsFail,
				fmt.Sprintf("the last %d rollouts all failed, the last one in %s with %s", e.InARow, e.Doing, e.Error),
			)
		}
		if !p.made && e.Own >= hopelessFailures {
			return p.hopeless(fmt.Sprintf("none of %s brought a group", plural(e.Rollouts, "rollout", "rollouts")),
				fmt.Sprintf("the last one failed in %s with %s", e.Doing, e.Error), true)
		}
	case "empty":
		text := emptyText(e, p.req.Config.MaxTokenLength)
		p.host.Log("warn", text)
		p.team.trouble(p.index, rolloutsEmpty, text)
		if !p.made && e.Rollouts >= hopelessEmpty {
			return p.hopeless("the environment brings no group", text, true)
		}
	case "evaluation-failed":
		p.host.Log("error", fmt.Sprintf("the evaluation at step %d failed: %s", e.Step, e.Error))
	case "evaluating":
		p.evaluating = p.version(ctx)
	case "unknown", "ignored", "no-environment":
		p.last = e
	}
	return nil
}

// span is the first span of a rollout's trace, which has just ended.
func (e event) span(environment string) trace.Span {
	ended := time.UnixMicro(int64(e.Time * 1e6))
	s := trace.Span{Context: trace.Context{TraceID: e.TraceID, SpanID: e.SpanID, Sampled: true}, Name: "rollout",
		Began: ended.Add(-time.Duration(e.Seconds * float64(time.Second))), Ended: ended, Error: e.Error,
		Attributes: map[string]string{"recipe.environment": environment}}
	if n := float64(len(e.Scores)); n > 0 {
		s.Numbers = map[string]float64{"recipe.completions": n, "recipe.reward": totalOf(e.Scores) / n,
			"gen_ai.usage.output_tokens": totalOf(e.Lengths)}
	}
	return s
}

func totalOf(list []float64) (total float64) {
	for _, x := range list {
		total += x
	}
	return total
}

// manyFailures are as many rollouts in a row as no environment loses by chance.
const manyFailures = 8

// Rollouts without a group and refused posts in a row that end the block. They are of the environment's own doing:
// while a server is away, it waits. Rollouts end it only where not one has ever brought a group, because some
// environments raise on purpose where an answer is of no use. The launcher tells of failed rollouts at powers of two,
// and of empty ones at 50 and 500.
const (
	hopelessFailures = 50
	hopelessEmpty    = 500
	refusedPosts     = 10 // as environments of the SDK
)

// hopeless is the error of a process from which nothing comes; final, when nothing ever did: another attempt would not
// change that.
func (p *process) hopeless(what, why string, final bool) error {
	return &sdk.Error{
		Summary: what,
		Err:     errors.New(why),
		Remedy:  "correct the environment, or its settings in config; the log of its process has more (recipe logs)",
		Final:   final,
	}
}

// postFailed tells of groups that were scored and did not reach the trajectory API. Too many refusals in a row are an
// error.
func (p *process) postFailed(e event) error {
	failed := p.team.postFailed(p.index, e.Groups, e.Error)
	if !e.Away {
		if refused, ever := p.team.refused(p.index); refused >= refusedPosts {
			return p.hopeless(fmt.Sprintf("%d posts of scored groups in a row failed", refused), e.Error, !ever)
		}
	}
	if failed&(failed-1) == 0 { // each of the first ones, then at powers of two
		p.host.Log(
			"error",
			fmt.Sprintf(
				"a post of %s failed (failure %d so far): %s",
				plural(e.Groups, "scored group", "scored groups"),
				failed,
				e.Error,
			),
		)
	}
	return nil
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// emptyText explains why nothing comes of rollouts, as far as it can be seen: they asked inference for nothing, or no
// answer became a group.
func emptyText(e event, limit int64) string {
	logged := ""
	if e.Error != "" {
		logged = ". The last error that the environment logged: " + e.Error
	}
	if e.Answers == 0 {
		return fmt.Sprintf(
			"%d rollouts in a row brought no group, and none of them asked inference for anything. Lengths "+
				"that do not fit do that: "+
				"max_token_length (%s) against the prompt and max_model_len%s",
			e.Rollouts,
			limitText(limit),
			logged,
		)
	}
	if logged != "" {
		return fmt.Sprintf(
			"%d rollouts in a row brought no group, although inference answered %d times%s",
			e.Rollouts,
			e.Answers,
			logged,
		)
	}
	return fmt.Sprintf(
		"%d rollouts in a row brought no group, although inference answered %d times: the environment drops every "+
			"answer without an error. "+
			"A minimum length does that (some environments drop answers of fewer than 10 tokens), or a scoring that "+
			"rejects what the model writes",
		e.Rollouts,
		e.Answers,
	)
}

func limitText(n int64) string {
	if n == 0 {
		return "the environment's own"
	}
	return fmt.Sprint(n)
}

func (p *process) registered(e event) {
	if !p.up {
		p.up = true
		p.team.waiting()
	}
	if e.Event == "registered" {
		p.note(e.EnvID)
		p.team.tell(fmt.Sprintf("registered as %s", e.Name))
		return
	}
	p.team.tell("waits for the trainer to ask for its first batch")
}

// evaluation reports an evaluation that the environment ran by itself, under the policy version that is served now.
// When that was another one at its start the numbers belong to neither, and that is said.
func (p *process) evaluation(ctx context.Context, e event) {
	now := p.version(ctx)
	named := map[string]float64{"eval/policy_version": float64(now)}
	if now != p.evaluating {
		named["eval/policy_version_first"] = float64(p.evaluating)
		p.host.Log(
			"warn",
			fmt.Sprintf(
				"the policy went from version %d to %d during the evaluation; for numbers that belong to one version use "+
					"evaluate_before and evaluate_after",
				p.evaluating,
				now,
			),
		)
	}
	for k, v := range e.Metrics {
		named["eval/"+strings.TrimPrefix(k, "eval/")] = v
	}
	p.host.Metrics(e.Step, named)
}

// polled takes the trainer's step from a status poll, of which there is one every two seconds.
func (p *process) polled(step int64) {
	if p.known && step == p.at {
		return
	}
	back := p.known && step < p.at
	p.known, p.at = true, step
	p.team.polled(step, max(0, p.req.Config.TotalSteps), back)
}

// text writes metrics for a log line, in order of their names.
func text(metrics map[string]float64) string {
	parts := make([]string, 0, len(metrics))
	for _, k := range slices.Sorted(maps.Keys(metrics)) {
		parts = append(parts, fmt.Sprintf("%s %.4g", k, metrics[k]))
	}
	return strings.Join(parts, ", ")
}
