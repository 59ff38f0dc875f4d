package evaluation

// Schedule is when the policy is evaluated: at steps of its trainer.
type Schedule struct {
	Start bool
	Every int64 // 0: only at the start and the end
	// Period is the steps between two weight updates: in between inference has the weights of the step before.
	Period int64
}

// Next is the step whose weights are to be evaluated next. Done is the newest step for which that has been done, -1:
// for none; served is the step of the weights that inference serves now, -1: not known. A step that has been missed
// is due at once, and steps before it are not made up for. False: none is due before the end.
func (s Schedule) Next(done, served int64) (step int64, ok bool) {
	if s.Start && done < 0 && (served <= 0 || s.Every == 0 || served < s.step(1)) {
		return 0, true
	}
	if s.Every == 0 {
		return 0, false
	}
	n := int64(1)
	if done >= 0 { // the first after it
		n = max(1, done/s.Every)
		for s.step(n) <= done {
			n++
		}
	}
	if late := s.before(served); late > done {
		return late, true
	}
	return s.step(n), true
}

// Has reports whether a step is due by Every.
func (s Schedule) Has(step int64) bool { return step > 0 && s.before(step) == step }

// step is the n-th step that is due by Every: the newest one at which inference gets weights.
func (s Schedule) step(n int64) int64 {
	step, period := n*s.Every, max(1, s.Period)
	if step < period {
		return period
	}
	return step - step%period
}

// before is the newest step that is due by Every up to a step; -1: none.
func (s Schedule) before(step int64) int64 {
	if s.Every == 0 || step <= 0 {
		return -1
	}
	n := (step + max(1, s.Period)) / s.Every
	for ; n > 0; n-- {
		if due := s.step(n); due <= step {
			return due
		}
	}
	return -1
}
