package run

import (
	"fmt"
	"time"

	"github.com/recipe-rl/recipe/engine/why"
)

// engineGap records when the engine itself last did not run.
type engineGap struct {
	looked time.Time // when the clock was last read, which is each second
	over   time.Time // the end of the last one; zero: there was none
}

// gapAfter is the time between two looks at the clock from which on the engine did not run between them.
const gapAfter = 15 * time.Second

// noteEngineGap says that the engine did not run: a person stopped it with Ctrl-Z, a laptop was closed. Blocks may have
// waited for it all that time, which is no fault of theirs.
func (s *supervisor) noteEngineGap(now time.Time) {
	now = now.Round(0) // the clock on the wall, which goes on while a machine is suspended
	away := now.Sub(s.gap.looked)
	if away >= gapAfter {
		s.gap.over = now
		s.e.notice("warn", fmt.Sprintf("the engine did not run for %s: it was stopped, or its machine was suspended or "+
			"very busy; how long blocks wait is counted from now", why.Span(away)))
	}
	s.gap.looked = now
}

// waitsCountFrom is when all of the run could last go on.
func (s *supervisor) waitsCountFrom() time.Time {
	if s.gap.over.After(s.pauses.resumed) {
		return s.gap.over
	}
	return s.pauses.resumed
}
