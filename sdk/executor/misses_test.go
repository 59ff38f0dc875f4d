package executor

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script is an executor that answers with these states, the last one for ever.
type script struct {
	Executor
	states []State
	asked  int
}

func (s *script) Status(context.Context, []Handle) ([]Status, error) {
	state := s.states[min(s.asked, len(s.states)-1)]
	s.asked++
	return []Status{{State: state, Reason: "no such job"}}, nil
}

// TestAJobIsLostAfterSeveralMisses waits as Cancel does, and settles as an engine does that takes a job over.
func TestAJobIsLostAfterSeveralMisses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		states []State
		every  time.Duration
		want   State
		asked  int
	}{
		"omitted once":            {[]State{Unknown, Running}, time.Second, Running, 2},
		"omitted, but not in row": {[]State{Unknown, Unknown, Pending}, time.Second, Pending, 3},
		"missing for long":        {[]State{Unknown}, 4 * time.Second, Lost, 4},
		"missing, asked seldom":   {[]State{Unknown}, time.Minute, Lost, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				x := &script{states: c.states}
				got, err := poll(t.Context(), x, Handle{ID: "7"}, c.every, func(s Status) bool { return s.State != Unknown })
				if err != nil || got.State != c.want || x.asked != c.asked {
					t.Errorf("after %d questions: %s, %v; expected %s after %d", x.asked, got, err, c.want, c.asked)
				}
			})
		})
	}
}

func TestAnUnknownJobIsNotOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := &script{states: []State{Unknown, Unknown, Running}}
		ctx, cancel := context.WithTimeout(t.Context(), 2*missingFor)
		defer cancel()
		if err := Wait(ctx, x, Handle{ID: "7"}, time.Second); err == nil {
			t.Error("Wait takes a job for over that was named again")
		}
		x = &script{states: []State{Unknown}}
		got, err := Settled(t.Context(), x, Handle{ID: "7"})
		if err != nil || got.State != Lost || !strings.Contains(got.Reason, "no such job, in ") {
			t.Errorf("settled: %s, %v; expected that it is lost, and why", got, err)
		}
	})
}
