package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/sdk"
)

// scored are tasks that were answered by policy versions, oldest and newest; nil: not known.
func scored(versions ...[]int64) sdk.TaskScores {
	out := sdk.TaskScores{Tasks: 100}
	for i, v := range versions {
		out.Results = append(out.Results, sdk.TaskScore{Task: i, Scores: []float64{1}, Versions: v})
	}
	return out
}

func newAnswers(t *testing.T, live bool) *answers {
	t.Helper()
	f, err := evaluation.OpenFile(t.Context(), "", evaluation.Header{Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &answers{scores: f, live: live}
}

// Only what one policy version has answered is kept.
func TestAnswersAreOfOneVersion(t *testing.T) {
	t.Parallel()
	a := newAnswers(t, true)
	// The newest of the first call is pinned; what an older one or two have answered is asked again.
	if err := a.take(scored([]int64{1, 1}, []int64{1, 2}, []int64{2, 2})); err != nil {
		t.Fatal(err)
	}
	if _, kept := a.scores.Done[2]; len(a.scores.Done) != 1 || !kept || a.scores.Header.Version != 2 {
		t.Errorf("kept %v of version %d; want task 2 of version 2", a.scores.Done, a.scores.Header.Version)
	}
	if err := a.take(scored([]int64{2, 2}, []int64{2, 2})); err != nil || len(a.scores.Done) != 3 {
		t.Errorf("kept %v, %v", a.scores.Done, err)
	}
	err := a.take(scored([]int64{2, 3}))
	if err == nil || !strings.Contains(err.Error(), "changed from version 2 to 3") {
		t.Errorf("a newer version is answered with %v", err)
	}
	// A later call goes on with the version of the answers that are there.
	again := &answers{scores: a.scores, live: true}
	again.resume()
	if err := again.take(scored([]int64{3, 3})); err == nil {
		t.Error("answers of version 3 were added to those of version 2")
	}
}

func TestAPolicyThatChangesTooFastIsRefused(t *testing.T) {
	t.Parallel()
	a := newAnswers(t, true)
	var err error
	for range staleCalls {
		if err = a.take(scored([]int64{1, 2})); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "changes faster than a task is answered") || len(a.scores.Done) != 0 {
		t.Errorf("kept %v, %v", a.scores.Done, err)
	}
}

// The same command would be refused again, and does not continue.
func TestAPolicyThatChangedIsNotContinued(t *testing.T) {
	t.Parallel()
	a := newAnswers(t, true)
	if err := a.take(scored([]int64{2, 2})); err != nil {
		t.Fatal(err)
	}
	moved := kept(a.take(scored([]int64{3, 3})), a.scores, "scores.jsonl").Error()
	const again = "the same command continues"
	if strings.Contains(moved, again) || !strings.Contains(moved, "1 tasks of the older one are kept") {
		t.Error(moved)
	}
	if away := kept(errors.New("away"), a.scores, "scores.jsonl").Error(); !strings.Contains(away, again) {
		t.Error(away)
	}
	var refused *sdk.Error
	if !errors.As(kept(a.take(scored([]int64{3, 3})), a.scores, "scores.jsonl"), &refused) || refused.Remedy == "" {
		t.Error("the remedy is lost")
	}
}

func TestUnknownVersionsAreKept(t *testing.T) {
	t.Parallel()
	a := newAnswers(t, false)
	if err := a.take(scored(nil, nil)); err != nil || len(a.scores.Done) != 2 || a.scores.Header.Version != 1 {
		t.Errorf("kept %v, %v", a.scores.Done, err)
	}
}

// A policy or a judge that is away ends the evaluation at its first tasks.
func TestAnEvaluationWithoutScoresEnds(t *testing.T) {
	t.Parallel()
	a := newAnswers(t, false)
	err := a.take(sdk.TaskScores{Tasks: 9, Results: []sdk.TaskScore{{Task: 0, Failed: []string{"the judge is away"}}}})
	if err == nil || !strings.Contains(err.Error(), "the judge is away") || len(a.scores.Done) != 1 {
		t.Errorf("kept %v, %v", a.scores.Done, err)
	}
	if err := a.take(sdk.TaskScores{Tasks: 9, Results: []sdk.TaskScore{{Task: 1, Failed: []string{"x"}}}}); err != nil {
		t.Errorf("a later task that failed ends the evaluation: %v", err)
	}
}
