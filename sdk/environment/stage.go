package environment

import (
	"fmt"
	"sync"
	"time"

	"github.com/recipe-rl/recipe/internal/unsent"
	"github.com/recipe-rl/recipe/sdk"
)

// stage is what groups are at. The calls of one stage are told together: how many there are, since when the oldest
// waits, and when one last came back.
type stage struct {
	mu    sync.Mutex
	began map[int]time.Time
	next  int
	ended time.Time
}

// begin notes a call; the function that it returns notes its end.
func (s *stage) begin() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began == nil {
		s.began = map[int]time.Time{}
	}
	id := s.next
	s.next++
	s.began[id] = time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.began, id)
		s.ended = time.Now()
	}
}

// activity is a for all calls of the stage; false when there are none.
func (s *stage) activity(a sdk.Activity, what func(n int) string) (sdk.Activity, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.began) == 0 {
		return a, false
	}
	for _, t := range s.began {
		if a.Began.IsZero() || t.Before(a.Began) {
			a.Began = t
		}
	}
	a.What, a.Progressed = what(len(s.began)), s.ended
	return a, true
}

// stages are the ways of a group.
type stages struct {
	next, draw, score, act, post stage

	mu          sync.Mutex
	registering time.Time // since when; zero: it is registered
	refusedBy   string    // what the last attempt to register came to
	full        time.Time // since when no group may be begun; zero: there is room
	fullWhy     string
	over        time.Time // since when Next has no more tasks; zero: it has

	unsent unsent.Row
}

func (s *stages) waitToRegister(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registering.IsZero() {
		s.registering = time.Now()
	}
	s.refusedBy = why
}

func (s *stages) registered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.registering, s.refusedBy = time.Time{}, ""
}

// room notes whether a group may be begun, and what is in the way.
func (s *stages) room(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case why == "":
		s.full = time.Time{}
	case why != s.fullWhy: // the trainer has taken something, or more has come
		s.full = time.Now()
	}
	s.fullWhy = why
}

func (s *stages) finished() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over.IsZero() {
		s.over = time.Now()
	}
}

// activities are what the environment does now.
func (r *rollouts) activities() []sdk.Activity {
	var out []sdk.Activity
	add := func(a sdk.Activity, ok bool) {
		if ok {
			out = append(out, a)
		}
	}
	groups := func(before, after string) func(int) string {
		return func(n int) string { return before + count(n, "group") + after }
	}
	s := &r.stages
	add(s.next.activity(sdk.Activity{Sign: "task",
		Remedy: "look at Next of this environment: recipe status --why --stacks shows where it is"},
		func(n int) string { return fmt.Sprintf("Next (%s)", count(n, "call")) }))
	add(s.draw.activity(sdk.Activity{On: r.settings.Inference.Address, Sign: "answer"},
		groups("the completions of ", "")))
	slow := ""
	if w, ok := any(r.source).(interface{ Waiting() string }); ok {
		slow = w.Waiting()
	}
	add(s.score.activity(sdk.Activity{Sign: "score", Detail: slow,
		Remedy: "look at Score of this environment: recipe status --why --stacks shows where it is"},
		func(n int) string { return "Score of " + count(n, "completion") }))
	add(s.act.activity(sdk.Activity{Sign: "environment",
		Remedy: "look at the environment's server: recipe status --why --stacks shows which call waits"},
		func(n int) string { return "the environment to answer " + count(n, "episode") }))
	add(s.post.activity(sdk.Activity{On: r.settings.Trajectories.Address}, groups("it to take ", "")))
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.registering.IsZero():
		out = append(out, sdk.Activity{On: r.settings.Trajectories.Address, What: "a trainer to register",
			Detail: s.refusedBy, Began: s.registering})
	case !s.over.IsZero():
		out = append(out, sdk.Activity{What: "no tasks left", Detail: "Next returned none",
			Began:  s.over,
			Remedy: "give the environment more tasks, or let Next begin anew"})
	case s.fullWhy != "" && len(out) == 0:
		out = append(out, sdk.Activity{On: r.settings.Trajectories.Address, What: "the trainer to take what is posted",
			Detail: s.fullWhy, Began: s.full})
	}
	if a, ok := s.unsent.Activity(time.Now()); ok {
		if slow != "" {
			a.Detail += "; it waits for " + slow
		}
		return []sdk.Activity{a} // other work in progress gives the trainer nothing
	}
	return out
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
