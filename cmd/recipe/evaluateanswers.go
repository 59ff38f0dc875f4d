package main

import (
	"fmt"

	"github.com/recipe-rl/recipe/engine/evaluation"
	"github.com/recipe-rl/recipe/sdk"
)

// answers keeps what an evaluation has answered, all of it from one policy version.
type answers struct {
	scores *evaluation.File
	record *evaluation.Record // nil: none
	live   bool               // the policy's version is known to the run: it is part of the result
	pinned bool
	pin    int64 // the version
	stale  int   // calls in a row whose answers were all of older versions or of several
}

// staleCalls are as many as may follow each other without an answer of one version.
const staleCalls = 5

// resume pins the version of earlier answers.
func (a *answers) resume() {
	for _, t := range a.scores.Done {
		if len(t.Versions) == 2 {
			a.pinned, a.pin = true, t.Versions[1]
		}
	}
}

// take keeps the tasks that the pinned version has answered. The first call pins the newest version that answered in
// it. Tasks that an older version answered, or several, stay missing and are asked again.
func (a *answers) take(got sdk.TaskScores) error {
	if newest, known := newestOf(got.Results); known {
		switch {
		case !a.pinned:
			a.pinned, a.pin = true, newest
			if a.live {
				a.scores.Pin(newest)
			}
		case newest > a.pin:
			return policyChanged(a.pin, newest)
		}
	}
	first, kept := len(a.scores.Done) == 0, 0
	for _, t := range got.Results {
		if len(t.Versions) == 2 && (t.Versions[0] != a.pin || t.Versions[1] != a.pin) {
			continue
		}
		kept++
		if err := a.scores.Add(t); err != nil {
			return err
		}
		a.record.Add(t)
	}
	if a.stale++; kept > 0 || len(got.Results) == 0 {
		a.stale = 0
	}
	if a.stale == staleCalls {
		return policyChanged(a.pin, a.pin)
	}
	if why := scoreless(got.Results); first && why != "" && len(got.Results) < got.Tasks {
		return &sdk.Error{Summary: fmt.Sprintf("no completion of the first %d tasks got a score: %s", len(got.Results), why),
			Remedy: "remove the cause, then the same command; with --out, --retry-failed asks these tasks again"}
	}
	return nil
}

// scoreless is why no completion of the tasks has a score; empty: one has.
func scoreless(results []sdk.TaskScore) (why string) {
	for _, t := range results {
		if len(t.Scores) > 0 {
			return ""
		}
		if why == "" && len(t.Failed) > 0 {
			why = t.Failed[0]
		}
	}
	return why
}

func newestOf(results []sdk.TaskScore) (newest int64, known bool) {
	for _, t := range results {
		if len(t.Versions) == 2 && (!known || t.Versions[1] > newest) {
			newest, known = t.Versions[1], true
		}
	}
	return newest, known
}

// policyChanged refuses to mix the answers of several policy versions.
func policyChanged(from, to int64) error {
	summary := fmt.Sprintf("the policy changed from version %d to %d during the evaluation, whose result is of one "+
		"version", from, to)
	if from == to {
		summary = fmt.Sprintf("the policy changes faster than a task is answered; version %d is the newest", to)
	}
	return &policyMoved{&sdk.Error{Summary: summary, Remedy: "evaluate a checkpoint, which does not change: recipe " +
		"stop, then the same command without the --out of another version; or evaluate fewer tasks (--limit N)"}}
}

// policyMoved is the error of an evaluation whose policy has changed meanwhile.
type policyMoved struct{ error }

func (e *policyMoved) Unwrap() error { return e.error }
