package evaluation

import (
	"strings"
	"testing"

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

func newAnswers(t *testing.T, live bool) *Session {
	t.Helper()
	f, err := OpenFile(t.Context(), "", Header{Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	return &Session{Scores: f, Live: live}
}

// Only what one policy version has answered is kept.
func TestAnswersAreOfOneVersion(t *testing.T) {
	t.Parallel()
	a := newAnswers(t, true)
	// The newest of the first call is pinned; what an older one or two have answered is asked again.
	if err := a.Take(scored([]int64{1, 1}, []int64{1, 2}, []int64{2, 2})); err != nil {
		t.Fatal(err)
	}
	if _, kept := a.Scores.Done[2]; len(a.Scores.Done) != 1 || !kept || a.Scores.Header.Version != 2 {
		t.Errorf("kept %v of version %d; want task 2 of version 2", a.Scores.Done, a.Scores.Header.Version)
	}
	if err := a.Take(scored([]int64{2, 2}, []int64{2, 2})); err != nil || len(a.Scores.Done) != 3 {
		t.Errorf("kept %v, %v", a.Scores.Done, err)
	}
	err := a.Take(scored([]int64{2, 3}))
	if err == nil || !strings.Contains(err.Error(), "changed from version 2 to 3") {
		t.Errorf("a newer version is answered with %v", err)
	}
	// A later call goes on with the version of the answers that are there.
	again := &Session{Scores: a.Scores, Live: true}
	again.Resume()
	if err := again.Take(scored([]int64{3, 3})); err == nil {
		t.Error("answers of version 3 were added to those of version 2")
	}
}

func TestAPolicyThatChangesTooFastIsRefused(t *testing.T) {
	t.Parallel()
	a := newAnswers(t, true)
	var err error
	for range staleCalls {
		if err = a.Take(scored([]int64{1, 2})); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "changes faster than a task is answered") || len(a.Scores.Done) != 0 {
		t.Errorf("kept %v, %v", a.Scores.Done, err)
	}
}

func TestUnknownVersionsAreKept(t *testing.T) {
	t.Parallel()
	a := newAnswers(t, false)
	if err := a.Take(scored(nil, nil)); err != nil || len(a.Scores.Done) != 2 || a.Scores.Header.Version != 1 {
		t.Errorf("kept %v, %v", a.Scores.Done, err)
	}
}

// A policy or a judge that is away ends the evaluation at its first tasks.
func TestAnEvaluationWithoutScoresEnds(t *testing.T) {
	t.Parallel()
	a := newAnswers(t, false)
	err := a.Take(sdk.TaskScores{Tasks: 9, Results: []sdk.TaskScore{{Task: 0, Failed: []string{"the judge is away"}}}})
	if err == nil || !strings.Contains(err.Error(), "the judge is away") || len(a.Scores.Done) != 1 {
		t.Errorf("kept %v, %v", a.Scores.Done, err)
	}
	if err := a.Take(sdk.TaskScores{Tasks: 9, Results: []sdk.TaskScore{{Task: 1, Failed: []string{"x"}}}}); err != nil {
		t.Errorf("a later task that failed ends the evaluation: %v", err)
	}
}
