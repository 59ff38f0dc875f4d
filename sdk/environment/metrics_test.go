package environment_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/environment"
	"github.com/recipe-rl/recipe/sdk/pluginpb"
	"github.com/recipe-rl/recipe/sdk/plugintest"
	"github.com/recipe-rl/recipe/sdk/trajectory"
)

// What Score records beside a score is in the posted group, in the block's metrics and in both evaluations.
func TestMetricsOfScores(t *testing.T) {
	t.Parallel()
	a, b := setUp(t, func(c *config) { c.Letter = "o" }) // of "one, two, three" some answers have it, others not
	a.until(t, "four groups", func(a *api) bool { return len(a.groups) >= 4 })
	a.set(func(a *api) {
		for _, g := range a.groups {
			for i, score := range g.Scores {
				own, _ := g.Overrides[i][trajectory.OverrideMetrics].(map[string]any)
				if _, share := own["share"]; own["letters"] != score || share != (score > 0) {
					t.Errorf("the score is %v and its metrics %v", score, own)
				}
			}
		}
	})
	reported := b.Wait("metrics", func(e *pluginpb.Event) bool {
		_, share := e.GetMetrics().GetValues()["metrics/share"]
		return share
	}).GetMetrics().GetValues()
	if reported["metrics/letters"] != reported["reward"] || reported["metrics/share"] <= 0 {
		t.Errorf("reported %v; want metrics/letters as the reward, and metrics/share over the completions that have it",
			reported)
	}
	ctx, cancel := context.WithTimeout(t.Context(), plugintest.Deadline)
	defer cancel()
	r, err := b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{})
	if err != nil || r.GetMetrics()["metrics/letters"] != r.GetMetrics()["score"] {
		t.Errorf("evaluated %v, %v; want metrics/letters as the score", r, err)
	}
	r, err = b.Client.Evaluate(ctx, &pluginpb.EvaluateRequest{Samples: 4, Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range r.GetResults() {
		sum := 0.0
		for _, s := range task.GetScores() {
			sum += s
		}
		if math.Abs(task.GetMetrics()["letters"]-sum/4) > 1e-9 {
			t.Errorf("the scores of task %d are %v and its metrics %v", task.GetTask(), task.GetScores(), task.GetMetrics())
		}
	}
}

// A metric that cannot be reported loses the group, as a score does that cannot be told.
func TestMetricsThatAreRefused(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{
		"nan": `the metric "letters" is NaN`, "nameless": "has no name", "many": "one score has more than 64 metrics",
		"unprintable": "characters that cannot be shown",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, b := setUp(t, func(c *config) { c.Metric = what })
			e := b.Wait("failure", func(e *pluginpb.Event) bool {
				return e.GetPhase().GetPhase() == string(sdk.Failed)
			}).GetPhase()
			if !strings.Contains(e.GetMessage(), want) {
				t.Errorf("failed with %q, want %q in it", e.GetMessage(), want)
			}
		})
	}
	environment.Completion{}.Metric("of a completion made by hand", 1)
}
