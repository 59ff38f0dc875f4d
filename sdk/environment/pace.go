package environment

import "time"

// pace keeps the batch that the trainer gets next before those after it. Inference shares its time among all groups
// that are in flight: two batches that are begun together are done together, late, and then the trainer has two while
// nothing is half done. So groups for later batches are begun no faster than they can be done in the long run, most in
// the time that a group takes (and a quarter more, because that time varies). A batch's worth may come at once, as it
// does whenever the trainer takes one.
type pace struct {
	took  time.Duration // a group, on average; 0: none is done
	saved float64       // groups that may be begun now
	at    time.Time     // as of then
}

const (
	paceSlack = 1.25
	paceShare = 8 // the last group counts for an eighth of the average
)

// done notes how long a group took.
func (p *pace) done(took time.Duration) {
	switch {
	case took <= 0:
	case p.took == 0:
		p.took = took
	default:
		p.took += (took - p.took) / paceShare
	}
}

// save counts what may be begun by now: batch and most are the groups of a batch and of all batches that may be ahead.
func (p *pace) save(now time.Time, batch, most int) {
	if p.at.IsZero() {
		p.at = now
	}
	if p.took > 0 {
		gained := paceSlack * float64(most) * now.Sub(p.at).Seconds() / p.took.Seconds()
		p.saved, p.at = min(float64(batch), p.saved+gained), now
	}
}

// begun notes a group that was begun, for whichever batch.
func (p *pace) begun() { p.saved = max(0, p.saved-1) }

// next is when the next group for a later batch may be begun; zero: now. False: once a group is done.
func (p *pace) next(most int) (time.Duration, bool) {
	if p.saved >= 1 {
		return 0, true
	}
	if p.took == 0 {
		return 0, false
	}
	return max(time.Millisecond, time.Duration((1-p.saved)*float64(p.took)/(paceSlack*float64(most)))), true
}
