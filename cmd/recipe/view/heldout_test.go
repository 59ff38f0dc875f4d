package view

import (
	"bytes"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/snapshot"
)

// What a trainer measures of training is not called an evaluation, however it is called.
func TestOnlyHeldOutTasksAreEvaluation(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"eval/accuracy": true, "accuracy": false, "metrics/accuracy": false,
		"percent_correct": false, "eval/policy_version": false} {
		snap := &snapshot.Snapshot{}
		for i := range 3 {
			snap.Apply(event.Event{Type: event.Metrics, Address: "environment.x.e", Step: int64(i),
				Metrics: map[string]float64{name: float64(i)}})
		}
		var out bytes.Buffer
		if err := Summary(&out, Style{}, snap); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "evaluation of held-out tasks"); got != want {
			t.Errorf("%s: called an evaluation: %v\n%s", name, got, out.String())
		}
	}
}

func TestTrackersAreInAPlan(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Recipe: "r", Operations: []*plan.Operation{{Action: plan.Create}},
		Counts: map[plan.Action]int{plan.Create: 1},
		Tracking: []plan.Tracker{{Tracker: "wandb", Name: "w", Missing: "run recipe init"},
			{Tracker: "otlp", Name: "o"}}}
	var out bytes.Buffer
	if err := Plan(&out, Style{}, p); err != nil {
		t.Fatal(err)
	}
	const want = "Tracking:\n  wandb w\n    Warning: run recipe init\n  otlp o\n"
	if !strings.Contains(out.String(), want) {
		t.Errorf("%s\nwant in it:\n%s", out.String(), want)
	}
}
