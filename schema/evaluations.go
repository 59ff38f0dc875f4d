package schema

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Sampler is the inference block that answers an environment: the one that its attribute inference names. False: it
// names none.
func Sampler(environment *Block) (addr.Block, bool) {
	for _, n := range environment.Needs {
		if n.On.Kind == kind.Inference && n.Attribute == "inference" {
			return n.On, true
		}
	}
	return addr.Block{}, false
}

// Trains is the trainer whose weights an inference block serves, and the sync block that brings them; nil: none does.
func Trains(inference addr.Block, blocks []*Block) (trainer, sync *Block) {
	for _, s := range blocks {
		if s.Addr.Kind != kind.Sync || !slices.ContainsFunc(s.Needs, func(n Need) bool { return n.On == inference }) {
			continue
		}
		for _, n := range s.Needs {
			if n.On.Kind == kind.Trainer {
				return named(n.On.String(), blocks)[0], s
			}
		}
	}
	return nil, nil
}

// HeldOut is the attribute in which an environment has the number of its held-out tasks, by the names that environments
// have for it, and the number; 0: it is not known.
func HeldOut(environment *Block) (attribute string, tasks int) {
	var c struct {
		Tasks int `recipe:"eval_tasks"`
		Rows  int `recipe:"eval_rows"`
	}
	if (spec.Ref{Address: environment.Addr.String(), Values: environment.Value}).Decode(&c) != nil {
		return "", 0
	}
	if c.Rows > 0 {
		return "eval_rows", c.Rows
	}
	return "eval_tasks", max(0, c.Tasks)
}

// holdsOutNone reports whether an environment is known to hold out no task.
func holdsOutNone(environment *Block) bool {
	value, _ := environment.Value.Unmark()
	if !value.IsKnown() || value.IsNull() || !value.Type().IsObjectType() || !value.Type().HasAttribute("eval_tasks") {
		return false
	}
	tasks, _ := value.GetAttr("eval_tasks").Unmark()
	return tasks.IsKnown() && !tasks.IsNull() && tasks.Type() == cty.Number && tasks.Equals(cty.Zero).True()
}

// checkEvaluations reports evaluations that cannot be made.
func checkEvaluations(held []*decode.Evaluation, blocks []*Block) (diags hcl.Diagnostics) {
	for _, e := range held {
		found := named(e.Environment.String(), blocks)
		if found == nil { // the reference is reported
			continue
		}
		wrong := func(format string, of ...any) {
			diags = append(diags, diagnostic.Problem(e.Range, "Invalid evaluation",
				fmt.Sprintf("evaluation.%s: ", e.Name)+fmt.Sprintf(format, of...)))
		}
		sampler, ok := Sampler(found[0])
		switch served := named(sampler.String(), blocks); {
		case !ok || served == nil:
			wrong("%s names no inference block of this recipe, so no policy version is known. `recipe evaluate` "+
				"evaluates by hand.", e.Environment)
			continue
		case found[0].Schema != nil && found[0].Schema.NoTaskScores:
			wrong("plugin %s gives no scores of single held-out tasks.", e.Environment.Plugin)
		case found[0].Meta.External != nil:
			wrong("%s is external: its server is not asked by this run.", e.Environment)
		case served[0].Meta.External != nil:
			wrong("%s, which %s asks, is external: it cannot be held at one policy version. `recipe evaluate` evaluates "+
				"by hand.", sampler, e.Environment)
		case holdsOutNone(found[0]):
			wrong("%s holds out no task: its eval_tasks is 0. Write how many of its tasks are kept for evaluations.",
				e.Environment)
		case e.Inference != (addr.Block{}) && e.Inference != sampler:
			wrong("inference is %s, but %s asks %s. Declare an environment that refers to the other one.", e.Inference,
				e.Environment, sampler)
		}
		if name, held := HeldOut(found[0]); held > 0 && e.Tasks > held {
			diags = append(diags, diagnostic.Warning(e.Range, "Fewer held-out tasks", fmt.Sprintf("evaluation.%s: tasks is %d, "+
				"and %s holds out %d (%s): it asks these. Raise %s, or lower tasks.", e.Name, e.Tasks, e.Environment, held, name,
				name)))
		}
		trainer, _ := Trains(sampler, blocks)
		if trainer == nil {
			wrong("no sync block brings weights to %s, so each evaluation would have the same result. "+
				"`recipe evaluate` evaluates once.", sampler)
			continue
		}
		if text := neverDue(e, KeepsOf(trainer).Steps); text != "" {
			diags = append(diags, diagnostic.Warning(e.Range, "Evaluations that never come",
				fmt.Sprintf("evaluation.%s: %s", e.Name, text)))
		}
		if limit := syncTimeout(trainer); limit > 0 && e.Timeout >= limit {
			wrong("timeout is %s, but %s fails when its weights wait for %s. Lower timeout, or raise sync_timeout of the "+
				"trainer.", e.Timeout, trainer.Addr, limit)
		}
	}
	return diags
}

// neverDue is which evaluations a trainer of so many steps never makes, or whose gate judges none of them; empty: it
// makes all. Steps 0: their number is not known.
func neverDue(e *decode.Evaluation, steps int64) string {
	var when []string
	if e.AtStart {
		when = append(when, "the start")
	}
	if e.AtEnd {
		when = append(when, "the end")
	}
	switch {
	case steps <= 0:
		return ""
	case e.Every > steps:
		left := "no evaluation is made"
		if len(when) > 0 {
			left = "only " + strings.Join(when, " and ") + " of the run are evaluated"
		}
		return fmt.Sprintf("every is %d, and the trainer makes %d steps: %s. Lower every, or raise steps.", e.Every, steps,
			left)
	case e.Gate != nil && e.Gate.From > steps:
		return fmt.Sprintf("from of gate is %d, and the trainer makes %d steps: the gate judges no result. Lower from, or "+
			"raise steps.", e.Gate.From, steps)
	}
	return ""
}

// syncTimeout is how long a trainer lets its weights wait; 0: it does not say.
func syncTimeout(trainer *Block) time.Duration {
	var c struct {
		SyncTimeout float64 `recipe:"sync_timeout"`
	}
	if (spec.Ref{Address: trainer.Addr.String(), Values: trainer.Value}).Decode(&c) != nil {
		return 0
	}
	return time.Duration(c.SyncTimeout * float64(time.Second))
}

// evaluations are those of a recipe.
type evaluations struct {
	held   []*decode.Evaluation
	unread []string // names of the others, in which a mistake is reported
}

// checkEvaluationMetric reports a metric of an evaluation that the recipe does not have.
func checkEvaluationMetric(name, where string, all evaluations, at hcl.Range) hcl.Diagnostics {
	if slices.ContainsFunc(all.unread, func(of string) bool {
		return strings.HasPrefix(name, decode.EvaluationPrefix+of+"/")
	}) {
		return nil
	}
	var known []string
	for _, e := range all.held {
		for _, m := range e.Metrics() {
			if known = append(known, e.MetricName(m)); e.MetricName(m) == name {
				return nil
			}
		}
		if strings.HasPrefix(name, e.MetricName("metrics/")) {
			return nil // what the environment reports of its scores
		}
	}
	detail := "the recipe has no evaluation block."
	if len(known) > 0 {
		detail = fmt.Sprintf("the evaluations of the recipe report %s.%s", diagnostic.List(known),
			diagnostic.DidYouMean(name, known))
	}
	return hcl.Diagnostics{diagnostic.Problem(at, "Unknown metric", fmt.Sprintf("%s is about the metric %q: %s", where,
		name, detail))}
}
