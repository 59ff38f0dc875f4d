package process

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/internal/attempt"
	"github.com/recipe-rl/recipe/sdk/internal/lease"
)

// A process whose engine was killed before it could record it ends within a tick, not after its lease.
//
//docs:survival.md the engine is killed between two writes of its record
func TestAProcessThatNobodyKnowsDoesNotWaitForItsLease(t *testing.T) {
	t.Parallel()
	lives, gone := strconv.Itoa(os.Getppid()), strconv.Itoa(os.Getppid()+1)
	for name, c := range map[string]struct {
		engine, agent string
		busy          bool
		ends          bool
	}{
		"the engine lives":           {lives, "", false, false},
		"the engine is gone":         {gone, "", false, true},
		"it works":                   {gone, "", true, false},
		"it works in a job":          {lives, lives, true, false},
		"its agent is gone":          {gone, gone, true, true},
		"its engine runs in the job": {gone, lives, true, false},
		"started some other way":     {"", "", false, false},
	} {
		s := &Server{}
		if c.busy {
			s.attempt = &attempt.Attempt{}
		}
		orphaned := s.orphaned(c.engine, c.agent)
		asked := make(chan struct{})
		l := lease.New(time.Hour, time.Millisecond, func() bool {
			select {
			case asked <- struct{}{}:
			case <-t.Context().Done():
			}
			return orphaned != nil && orphaned()
		}, func() {})
		ended := false
		for range 3 { // the answer has been handled when the next question comes
			select {
			case <-l.Expired():
				ended = true
			case <-asked:
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: no tick within 20 s", name)
			}
		}
		if ended != c.ends {
			t.Errorf("%s: ended: %v, want %v", name, ended, c.ends)
		}
		l.End()
	}
}
