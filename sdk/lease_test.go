package sdk

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/recipe-rl/recipe/sdk/internal/lease"
)

// A process whose engine was killed before it could write it down ends within a tick, not after its lease.
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
		s := &server{}
		if c.busy {
			s.attempt = &attempt{}
		}
		orphaned := s.orphaned(c.engine)
		l := lease.New(time.Hour, time.Millisecond, orphaned, func() {})
		select {
		case <-l.Expired():
			if !c.ends {
				t.Errorf("%s: it ended itself", name)
			}
		case <-time.After(map[bool]time.Duration{true: 20 * time.Second, false: 50 * time.Millisecond}[c.ends]):
			if c.ends {
				t.Errorf("%s: it stays", name)
			}
		}
		l.End()
	}
}
