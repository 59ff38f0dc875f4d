package environment

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// Groups that end together are reported together: their tokens are those of the whole time in which they were made.
func TestTokensASecondAreThoseOfTheTimeInWhichTheyWereSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tally := newTally()
		made := &rolled{sequences: []sequence{{sampled: 1000}}}
		rate := func() float64 {
			values, _ := tally.take()
			return values["tokens_per_second"]
		}
		time.Sleep(time.Minute) // nothing is made, which is not sampling
		for round := range 2 {
			first, second := tally.begin(), tally.begin()
			for range 4 {
				time.Sleep(2 * time.Second)
				if got := rate(); got != 0 {
					t.Fatalf("round %d: %g tokens a second before a group is done", round, got)
				}
			}
			time.Sleep(2 * time.Second)
			tally.add(Task{Prompt: "a task"}, made, true, false)
			tally.add(Task{Prompt: "a task"}, made, true, false)
			first()
			if got := rate(); got != 200 {
				t.Errorf("round %d: %g tokens a second, want 2000 in 10 s", round, got)
			}
			time.Sleep(5 * time.Second)
			tally.add(Task{Prompt: "a task"}, made, true, false)
			second()
			time.Sleep(time.Hour)
			if got := rate(); got != 200 {
				t.Errorf("round %d: %g tokens a second of the second group, want 1000 in 5 s", round, got)
			}
		}
	})
}

// loggedHost keeps the lines of a log, and drops everything else.
type loggedHost struct {
	sdk.Host
	lines []string
}

func (h *loggedHost) Log(level, message string) { h.lines = append(h.lines, level+": "+message) }

func (h *loggedHost) Metrics(int64, map[string]float64) {}

// An environment all of whose tasks are too long trains nothing, and would say nothing.
func TestGroupsThatAreAllTooLongAreReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		long, sent int
		last, told bool
	}{
		"many":               {manyGroups, 0, false, true},
		"few, and more come": {manyGroups - 1, 0, false, false},
		"few, and no more":   {1, 0, true, true},
		"one fits":           {manyGroups, 1, true, false},
	} {
		host := &loggedHost{}
		r := &rollouts{host: host, tally: newTally()}
		for range c.long {
			r.tally.tooLong()
		}
		for range c.sent {
			r.tally.add(Task{Prompt: "a task"}, &rolled{sequences: []sequence{{sampled: 1}}}, true, false)
		}
		r.report(c.last)
		if told := strings.Contains(strings.Join(host.lines, " "), "each is too long"); told != c.told {
			t.Errorf("%s: the log is %q", name, host.lines)
		}
	}
}
