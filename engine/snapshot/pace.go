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
	return b.pace.left(b.Total, now)
}

// pace is the speed of a block over its newest steps.
type pace struct {
	at    []time.Time
	steps []int64
}

const paceSteps = 64

func (p *pace) add(at time.Time, step int64) {
	if n := len(p.steps); n > 0 && step < p.steps[n-1] { // it was resumed from a checkpoint
		p.at, p.steps = nil, nil
	}
	p.at, p.steps = append(p.at, at), append(p.steps, step)
	if len(p.at) > 2*paceSteps {
		p.at, p.steps = append([]time.Time(nil), p.at[paceSteps:]...), append([]int64(nil), p.steps[paceSteps:]...)
	}
}

// left is how long the rest takes at this speed; false when that is unknown.
func (p *pace) left(total int64, now time.Time) (time.Duration, bool) {
	if len(p.at) < 2 {
		return 0, false
	}
	n := len(p.at) - 1
	made, took := p.steps[n]-p.steps[0], p.at[n].Sub(p.at[0])
	if made <= 0 || took <= 0 {
		return 0, false
	}
	rest := time.Duration(float64(took) / float64(made) * float64(total-p.steps[n]))
	return max(0, rest-max(0, now.Sub(p.at[n]))), true
}
