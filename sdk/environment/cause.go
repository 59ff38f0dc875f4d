package environment

import "errors"

// Caused is an error of a score or a rollout whose text has data of its rollout, such as the completion. Cause is what
// the errors of one cause have in common: an exception's type and the line that raised it. They are counted together.
type Caused interface {
	error
	Cause() string
}

// scoreTimeout is the cause of scores that took too long, in Go and in Python.
const scoreTimeout = "score_timeout"

// cause is a name for why a rollout has no score, without data of the rollout: metrics count by it.
func cause(err error) string {
	var (
		c      Caused
		late   *scoreTimedOut
		p      *panicked
		s      notFinite
		prompt *promptRefused
		infra  *InfraFailed
	)
	switch {
	case errors.As(err, &c):
		return c.Cause()
	case errors.As(err, &late):
		return scoreTimeout
	case errors.As(err, &p):
		return "panic in Score"
	case errors.As(err, &s):
		return "no finite score"
	case errors.As(err, &prompt):
		return "prompt refused by inference"
	case errors.As(err, &infra):
		return "infrastructure"
	}
	return "error of the environment"
}

// alike is what errors have in common that are reported as one: their cause where the text differs from one rollout to
// the next, else the text.
func alike(err error) string {
	var (
		c    Caused
		late *scoreTimedOut
	)
	if errors.As(err, &c) || errors.As(err, &late) {
		return cause(err)
	}
	return err.Error()
}

// maxCauses are as many causes as metrics have names for.
const maxCauses = 16

// noScores is the cause of completions with a score in a group that is left out.
const noScores = "too few scores in the group"

// causes counts rollouts without a score.
type causes struct {
	known map[string]bool // all since the start of the block
	now   map[string]float64
}

func (c *causes) add(name string, n float64) {
	if n == 0 {
		return
	}
	if c.known == nil {
		c.known = map[string]bool{}
	}
	if !c.known[name] && len(c.known) >= maxCauses {
		name = "other"
	} else {
		c.known[name] = true
	}
	if c.now == nil {
		c.now = map[string]float64{}
	}
	c.now[name] += n
}

// lost adds a group of so many rollouts that is left out.
func (c *causes) lost(reason error, rollouts float64) {
	var u *unscored
	if !errors.As(reason, &u) || u.counts == nil {
		c.add(cause(reason), rollouts)
		return
	}
	for i, n := range u.counts {
		c.add(cause(u.causes[i]), float64(n))
		rollouts -= float64(n)
	}
	c.add(noScores, max(rollouts, 0))
}

// take returns the counts since the last call.
func (c *causes) take() map[string]float64 {
	now := c.now
	c.now = nil
	return now
}
