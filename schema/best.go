package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/recipe-rl/recipe/internal/evaluated"
	"github.com/recipe-rl/recipe/schema/addr"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/schema/diagnostic"
	"github.com/recipe-rl/recipe/sdk/executor"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Keeps is which checkpoints a trainer keeps.
type Keeps struct {
	Steps  int64
	Every  int64 // steps between checkpoints; 0: only at the end
	Best   int64 // how many of the best
	Metric string
}

// KeepsOf reads it from a trainer, by the names that trainers have for it.
func KeepsOf(trainer *Block) Keeps {
	var c struct {
		Steps       int64  `recipe:"steps"`
		Every       int64  `recipe:"save_every"`
		Best        int64  `recipe:"keep_best"`
		Metric      string `recipe:"best_metric"`
		Checkpoints *struct {
			Every  int64  `recipe:"every"`
			Last   int64  `recipe:"keep_last"`
			Best   int64  `recipe:"keep_best"`
			Metric string `recipe:"best_metric"`
			By     string `recipe:"by"`
		} `recipe:"checkpoints,block"`
	}
	if (spec.Ref{Address: trainer.Addr.String(), Values: trainer.Value}).Decode(&c) != nil {
		return Keeps{}
	}
	k := Keeps{c.Steps, c.Every, c.Best, c.Metric}
	if b := c.Checkpoints; b != nil {
		if k.Every, k.Best, k.Metric = b.Every, b.Best, cmp.Or(b.By, b.Metric); b.Last == 0 {
			k.Best = 0 // all are kept
		}
	}
	return k
}

// checkBest reports trainers that cannot keep their best checkpoints by the evaluation or the metric that they name.
func checkBest(held evaluations, blocks []*Block) (diags hcl.Diagnostics) {
	for _, b := range blocks {
		if b.Addr.Kind != kind.Trainer {
			continue
		}
		keeps := KeepsOf(b)
		if keeps.Best == 0 || keeps.Metric == "" {
			continue
		}
		where := "best_metric of " + b.Addr.String()
		name, number, ok := evaluated.Split(keeps.Metric)
		if !ok {
			if wrong := checkBestMetric(keeps.Metric, where, b); wrong != nil {
				diags = append(diags, wrong)
			}
			continue
		}
		i := slices.IndexFunc(held.held, func(e *decode.Evaluation) bool { return e.Name == name })
		metric := keeps.Metric
		switch {
		case i < 0 && slices.Contains(held.unread, name):
			continue // it is reported
		case i < 0:
			var known []string
			for _, e := range held.held {
				known = append(known, decode.EvaluationPrefix+e.Name)
			}
			diags = append(diags, errorOf(b, b.Range, "Unknown metric", fmt.Sprintf("%s is %q, and the recipe has no block "+
				"evaluation.%s.%s", where, keeps.Metric, name, diagnostic.DidYouMean(decode.EvaluationPrefix+name, known))))
			continue
		case number == "":
			metric = held.held[i].MetricName(held.held[i].Main())
		}
		if wrong := checkEvaluationMetric(metric, where, held, b.Range); wrong != nil {
			diags = append(diags, wrong...)
			continue
		}
		e := held.held[i]
		found := named(e.Environment.String(), blocks)
		if found == nil {
			continue // it is reported
		}
		sampler, _ := Sampler(found[0])
		trainer, brings := Trains(sampler, blocks)
		text := ""
		switch {
		case slices.Contains([]string{"tasks", "failed", "seconds"}, number):
			text = fmt.Sprintf("%s is %q: more of it is not better. Name pass@K or score.", where, keeps.Metric)
		case trainer == nil: // it is reported
			continue
		case trainer.Addr != b.Addr:
			text = fmt.Sprintf("%s is %q, and evaluation.%s evaluates the weights of %s.", where, keeps.Metric, name,
				trainer.Addr)
		case staged(b, blocks):
			text = fmt.Sprintf("%s is %q, and %s runs where it cannot read results of evaluations: %s stages files, so they "+
				"are not beside its checkpoints. Use an executor that shares the run directory, or a metric of the trainer.",
				where, keeps.Metric, b.Addr, b.Meta.Placement.Executor)
		}
		if text != "" {
			diags = append(diags, errorOf(b, b.Range, "Invalid best_metric", text))
			continue
		}
		if text := unsaved(e, keeps, Period(brings)); text != "" {
			d := diagnostic.Warning(b.Range, "Evaluated steps without a checkpoint", text)
			d.Extra = InstanceExtra{Address: b.Addr}
			diags = append(diags, d)
		}
	}
	return diags
}

// checkBestMetric reports a metric that the trainer does not report in its steps, so that no checkpoint has a value of
// it. A checkpoint has the metrics by the trainer's own names: an alias finds none.
func checkBestMetric(name, where string, b *Block) *hcl.Diagnostic {
	_, _, wrong := checkMetric(name, where, []*Block{b}, b.Range)
	if wrong == nil && b.Schema != nil && b.Schema.Config != nil {
		if own := b.Schema.Config.OwnName(name); own != name {
			wrong = diagnostic.Problem(b.Range, "Unknown metric", fmt.Sprintf("%s is about the metric %q, which %s reports "+
				"as %q. Write that.", where, name, b.Addr, own))
		}
	}
	if wrong != nil {
		wrong.Extra = InstanceExtra{Address: b.Addr}
	}
	return wrong
}

// staged reports whether the machine of a block has copies of the run directory.
func staged(b *Block, blocks []*Block) bool {
	if b.Meta.Placement == nil {
		return false
	}
	at, err := addr.Parse(b.Meta.Placement.Executor)
	if err != nil {
		return false
	}
	found := named(at.String(), blocks)
	return len(found) > 0 && executor.FilesOf(found[0].Value).Staged()
}

// Period is how many steps lie between two updates of a sync block.
func Period(sync *Block) int64 {
	var c struct {
		Every int64 `recipe:"every"`
	}
	if (spec.Ref{Address: sync.Addr.String(), Values: sync.Value}).Decode(&c) != nil {
		return 1
	}
	return max(1, c.Every)
}

// checkPeriods reports sync blocks that bring no weights: the trainer ends before the first update is due, so inference
// serves the initial weights for the whole run.
func checkPeriods(blocks []*Block) (diags hcl.Diagnostics) {
	for _, s := range blocks {
		if s.Addr.Kind != kind.Sync {
			continue
		}
		for _, n := range s.Needs {
			found := named(n.On.String(), blocks)
			if n.On.Kind != kind.Trainer || found == nil {
				continue
			}
			steps, every := KeepsOf(found[0]).Steps, Period(s)
			if steps <= 0 || every < steps || every == 1 {
				continue
			}
			d := diagnostic.Warning(s.Range, "Weights that never come", fmt.Sprintf("%s: every is %d, and %s makes %d steps: "+
				"inference samples with the initial weights for the whole run. Lower every, or raise steps.", s.Addr, every,
				n.On, steps))
			d.Extra = InstanceExtra{Address: s.Addr}
			diags = append(diags, d)
		}
	}
	return diags
}

// mostSteps is how many evaluations are compared with the checkpoints of a trainer.
const mostSteps = 10_000

// unsaved is which evaluated steps have no checkpoint, so that they cannot be kept; empty: all have one.
func unsaved(e *decode.Evaluation, keeps Keeps, period int64) string {
	var without []string
	count, all := 0, 0
	for n := int64(1); e.Every > 0 && n*e.Every <= keeps.Steps && n <= mostSteps; n++ {
		step := max(period, n*e.Every-n*e.Every%period)
		all++
		if step >= keeps.Steps || keeps.Every > 0 && step%keeps.Every == 0 {
			continue
		}
		if count++; count <= 3 {
			without = append(without, fmt.Sprint(step))
		}
	}
	switch {
	case e.Every == 0 && e.AtEnd:
		return fmt.Sprintf("evaluation.%s evaluates no step but the last: there is nothing to choose from. Set every.",
			e.Name)
	case e.Every == 0:
		return fmt.Sprintf("evaluation.%s evaluates no step that has a checkpoint. Set every.", e.Name)
	case count == 0:
		return ""
	}
	if count > 3 {
		without = append(without, "…")
	}
	saved := fmt.Sprintf("a checkpoint every %d", keeps.Every)
	if keeps.Every == 0 {
		saved = "a checkpoint at the end alone"
	}
	return fmt.Sprintf("evaluation.%s evaluates every %d steps, and the trainer writes %s: %d of %d evaluated steps (%s) "+
		"have no checkpoint that could be kept as the best. Let the interval of evaluations be a multiple of that of "+
		"checkpoints.",
		e.Name, e.Every, saved, count, all, strings.Join(without, ", "))
}
