package ui

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/evaluation/evaluationtest"
	"github.com/recipe-rl/recipe/sdk"
)

// The page has each result of an evaluation, and what lies between the first and another, in bounds.
//
//docs:ui.md The dashboard
func TestEvaluationsAreShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	var all []history
	f.get("/evaluations", &all)
	if all == nil || len(all) != 0 {
		t.Errorf("a run without evaluations has %v", all)
	}
	at := func(solved ...int) []sdk.TaskScore { // tasks of these numbers pass
		tasks := make([]sdk.TaskScore, maxFlips+50)
		for i := range tasks {
			tasks[i] = evaluationtest.Task(i, fmt.Sprint("task ", i), strings.Repeat("x", 2*shortText), 0)
		}
		for _, i := range solved {
			tasks[i] = evaluationtest.Task(i, fmt.Sprint("task ", i), "right", 1)
		}
		return tasks
	}
	most := make([]int, maxFlips+20)
	for i := range most {
		most[i] = i + 5
	}
	first := evaluationtest.Write(t, string(f.dir), "held_out", 0, nil, at(0, 1)...)
	evaluationtest.Write(t, string(f.dir), "held_out", 10, first, at(0, 2)...)
	evaluationtest.Write(t, string(f.dir), "held_out", 20, first, at(most...)...)
	f.get("/evaluations", &all)
	if len(all) != 1 || len(all[0].Results) != 3 || all[0].Gained != maxFlips+20 || all[0].Lost != 2 ||
		len(all[0].Change.Flips) != maxFlips+2 || all[0].Change.After.Step != 20 {
		t.Fatalf("the newest comparison has %d gained, %d lost, %d flips", all[0].Gained, all[0].Lost,
			len(all[0].Change.Flips))
	}
	if c := all[0].Results[2].Change("pass@1"); c == nil || c.Tasks != maxFlips+50 {
		t.Errorf("the change since the baseline is %+v", c)
	}
	if n := len(all[0].Change.Flips[0].After); n > 2*shortText {
		t.Errorf("a completion has %d bytes", n)
	}
	f.get("/evaluations?name=held_out&step=10", &all)
	if all[0].Gained != 1 || all[0].Lost != 1 || all[0].Change.After.Step != 10 {
		t.Errorf("the comparison with step 10 is %+v", all[0].Change)
	}
	f.get("/evaluations?name=other&step=10", &all)
	if all[0].Change.After.Step != 20 {
		t.Errorf("a step of another evaluation was compared: %+v", all[0].Change.After)
	}
	if w := f.ask("/api/runs/demo/evaluations?step=x"); w.Code != http.StatusBadRequest {
		t.Errorf("a step that is no number was answered with %d %s", w.Code, w.Body)
	}
	must(t, os.Remove(filepath.Join(string(f.dir), first.Scores)))
	for query, want := range map[string]string{"": "no such file", "?name=held_out&step=7": "no result of step 7"} {
		all = nil
		f.get("/evaluations"+query, &all)
		if len(all) != 1 || len(all[0].Results) != 3 || all[0].Change != nil || !strings.Contains(all[0].Error, want) {
			t.Errorf("%q: results are lost with the comparison, or the error is: %+v", query, all)
		}
	}
}
