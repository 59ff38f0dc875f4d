package environment

import (
	"testing"
	"testing/synctest"
	"time"
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
