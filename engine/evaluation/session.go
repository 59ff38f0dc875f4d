package evaluation

import (
	"context"
	"fmt"

	"github.com/recipe-rl/recipe/sdk"
)

// Asker answers held-out tasks: the process of an environment.
type Asker interface {
	EvaluateTasks(ctx context.Context, req sdk.EvaluateTasks) (sdk.TaskScores, error)
}

// Wanted is what an evaluation asks for.
type Wanted struct {
	Limit       int // tasks, the first of the held-out set; 0: all
	Samples     int // completions of each
	Temperature float64
	Seed        *int64 // nil: that of the environment
}

// Session is an evaluation in progress: it keeps what is answered, all of it from one policy version.
type Session struct {
	Scores *File
	Record *Record // nil: none
	// Live says that the policy's version is known to the run: it is part of the result.
	Live bool

	pinned bool
	pin    int64 // the version
	stale  int   // calls in a row whose answers were all of older versions or of several
}

// What is asked for in one call, after which what has been answered is kept.
const (
	tasksAtOnce       = 16
	completionsAtOnce = 256 // bounds an answer's size, tokens included
)

// staleCalls are as many as may follow each other without an answer of one version.
const staleCalls = 5

// MovedError reports that the policy changed during an evaluation.
type MovedError struct{ From, To int64 } // equal: it changes faster than a task is answered

func (e *MovedError) Error() string {
	if e.From == e.To {
		return fmt.Sprintf("the policy changes faster than a task is answered; version %d is the newest", e.To)
	}
	return fmt.Sprintf("the policy changed from version %d to %d during the evaluation, whose result is of one version",
		e.From, e.To)
}

// ScorelessError reports that no completion of the first tasks got a score.
type ScorelessError struct {
	Tasks int
	Why   string // of the first
}

func (e *ScorelessError) Error() string {
	return fmt.Sprintf("no completion of the first %d tasks got a score: %s", e.Tasks, e.Why)
}

// Resume pins the version of earlier answers.
func (s *Session) Resume() {
	for _, t := range s.Scores.Done {
		if len(t.Versions) == 2 {
			s.Pin(t.Versions[1])
		}
	}
}

// Pin sets the version whose answers are kept.
func (s *Session) Pin(version int64) { s.pinned, s.pin = true, version }

// Fill asks for the tasks whose scores are missing, and returns how many tasks there are, at most the limit. Progress
// is called after each call, with how many are done of the tasks of the held-out set; nil: nobody looks.
func (s *Session) Fill(ctx context.Context, from Asker, w Wanted, progress func(done, total int)) (int, error) {
	total := -1
	for {
		limit := total
		if total < 0 { // not known before the first answer
			limit = 1 << 30
		}
		if w.Limit > 0 {
			limit = min(limit, w.Limit)
		}
		first, count := s.Scores.Missing(limit, min(tasksAtOnce, max(1, completionsAtOnce/w.Samples)))
		if count == 0 && total >= 0 {
			return limit, nil
		}
		answer, err := from.EvaluateTasks(ctx, sdk.EvaluateTasks{First: first, Limit: max(1, count), Samples: w.Samples,
			Temperature: w.Temperature, Seed: w.Seed})
		if err != nil {
			return 0, err
		}
		if answer.Tasks == 0 || len(answer.Results) == 0 && first < answer.Tasks {
			return 0, fmt.Errorf("it answered with no task of %d", answer.Tasks)
		}
		total = answer.Tasks
		if err := s.Take(answer); err != nil {
			return 0, err
		}
		if progress != nil {
			progress(len(s.Scores.Results(w.Limit)), total)
		}
	}
}

// Take keeps the tasks that the pinned version has answered. The first call pins the newest version that answered in
// it. Tasks that an older version answered, or several, stay missing and are asked again.
func (s *Session) Take(got sdk.TaskScores) error {
	if newest, known := newestOf(got.Results); known {
		switch {
		case !s.pinned:
			s.Pin(newest)
			if s.Live {
				s.Scores.Pin(newest)
			}
		case newest > s.pin:
			return &MovedError{s.pin, newest}
		}
	}
	first, kept := len(s.Scores.Done) == 0, 0
	for _, t := range got.Results {
		if len(t.Versions) == 2 && (t.Versions[0] != s.pin || t.Versions[1] != s.pin) {
			continue
		}
		kept++
		if err := s.Scores.Add(t); err != nil {
			return err
		}
		s.Record.Add(t)
	}
	if s.stale++; kept > 0 || len(got.Results) == 0 {
		s.stale = 0
	}
	if s.stale == staleCalls {
		return &MovedError{s.pin, s.pin}
	}
	if why := scoreless(got.Results); first && why != "" && len(got.Results) < got.Tasks {
		return &ScorelessError{len(got.Results), why}
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
