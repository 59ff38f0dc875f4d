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
func TestAProcessThatNobodyKnowsDoesNotWaitForItsLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		engine string
		busy   bool
		ends   bool
	}{
		"the engine lives":       {strconv.Itoa(os.Getppid()), false, false},
		"the engine is gone":     {strconv.Itoa(os.Getppid() + 1), false, true},
		"it works":               {strconv.Itoa(os.Getppid() + 1), true, false},
		"started some other way": {"", false, false},
	} {
		s := &Server{}
		if c.busy {
			s.attempt = &attempt.Attempt{}
		}
		orphaned := s.orphaned(c.engine)
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
