package view

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/event"
	"github.com/recipe-rl/recipe/engine/plan"
	"github.com/recipe-rl/recipe/engine/snapshot"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
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
		e := addr.Block{Kind: "environment", Plugin: "x", Name: "e"}
		run := &state.Run{Recipe: "r", Blocks: map[addr.Block]*state.Block{e: {}}}
		for view, show := range map[string]func(io.Writer) error{
			"the summary": func(w io.Writer) error { return Summary(w, Style{}, snap) },
			"status":      func(w io.Writer) error { return Status(w, Style{}, "r", "completed", snap, began) },
			"status --json": func(w io.Writer) error {
				return StatusJSON(w, run, snap, nil, nil, Seen{})
			},
			"runs --json": func(w io.Writer) error { return JSON(w, ResultOf("r", snap)) },
		} {
			var out bytes.Buffer
			if err := show(&out); err != nil {
				t.Fatal(err)
			}
			text := strings.ToLower(out.String())
			got := strings.Contains(text, "evaluat") || strings.Contains(text, "held-out") || strings.Contains(text, "→")
			if got != (want && view == "the summary") {
				t.Errorf("%s: %s calls it an evaluation: %v\n%s", name, view, got, out.String())
			}
			if strings.HasSuffix(view, "json") && !strings.Contains(text, name) {
				t.Errorf("%s: it has another name in %s\n%s", name, view, out.String())
			}
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
