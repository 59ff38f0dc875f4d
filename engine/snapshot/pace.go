package snapshot

import (
	"time"

	"github.com/recipe-rl/recipe/sdk"
)

// TimeLeft is how long a block needs for the rest of its steps at its present speed; false while that is unknown, when
// nothing is left, and while the run is paused.
func (snap *Snapshot) TimeLeft(b *Block, now time.Time) (time.Duration, bool) {
	if b.Step >= b.Total || !snap.Paused.IsZero() || !snap.Ended.IsZero() || sdk.Phase(b.Phase).Over() {
		return 0, false
	}
	return b.Pace.left(b.Total, now)
}

// Pace is the speed of a block over its newest steps: which step was made when.
type Pace struct {
	At    []time.Time
	Steps []int64
}

const paceSteps = 64

func (p *Pace) add(at time.Time, step int64) {
	if n := len(p.Steps); n > 0 && step < p.Steps[n-1] { // it was resumed from a checkpoint
		p.At, p.Steps = nil, nil
	}
	p.At, p.Steps = append(p.At, at), append(p.Steps, step)
	if len(p.At) > 2*paceSteps {
		p.At, p.Steps = append([]time.Time(nil), p.At[paceSteps:]...), append([]int64(nil), p.Steps[paceSteps:]...)
	}
}

// left is how long the rest takes at this speed; false when that is unknown.
func (p *Pace) left(total int64, now time.Time) (time.Duration, bool) {
	if len(p.At) < 2 {
		return 0, false
	}
	n := len(p.At) - 1
	made, took := p.Steps[n]-p.Steps[0], p.At[n].Sub(p.At[0])
	if made <= 0 || took <= 0 {
		return 0, false
	}
	rest := time.Duration(float64(took) / float64(made) * float64(total-p.Steps[n]))
	return max(0, rest-max(0, now.Sub(p.At[n]))), true
}
