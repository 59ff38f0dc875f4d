package run

import (
	"math/rand/v2"
	"time"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/sdk/kind"
)

// Defaults of the restart block.
const (
	defaultAttempts = 3
	defaultWindow   = 10 * time.Minute
	defaultDelay    = time.Second
	defaultMaxDelay = time.Minute
)

// restartPolicy is the restart block of b with defaults filled in. A sync block or a service gets the same defaults as a job.
func restartPolicy(m *schema.Restart) schema.Restart {
	p := schema.Restart{Attempts: defaultAttempts, Window: defaultWindow, Delay: defaultDelay, MaxDelay: defaultMaxDelay, Mode: "fail"}
	if m == nil {
		return p
	}
	p.Attempts = m.Attempts
	if m.Window > 0 {
		p.Window = m.Window
	}
	if m.Delay > 0 {
		p.Delay = m.Delay
	}
	if m.MaxDelay > 0 {
		p.MaxDelay = m.MaxDelay
	}
	if m.Mode != "" {
		p.Mode = m.Mode
	}
	return p
}

// verdict is what the restart policy says after a failure.
type verdict struct {
	Restart bool
	Delay   time.Duration
	Attempt int         // of the restart that is allowed, from 1
	History []time.Time // restarts within the window, the new one included
}

// decideRestart is the whole policy: a restart is allowed while fewer than Attempts lie within Window; the wait doubles
// with each of them up to MaxDelay and is then shortened by up to a quarter, so that blocks that failed together do not
// come back together. jitter is in [0, 1).
func decideRestart(p schema.Restart, history []time.Time, now time.Time, jitter float64) verdict {
	var recent []time.Time
	for _, t := range history {
		// A clock that was set back makes times lie in the future: they count as recent, never as a free restart.
		if now.Sub(t) < p.Window {
			recent = append(recent, t)
		}
	}
	if len(recent) >= p.Attempts {
		return verdict{History: recent}
	}
	delay := p.Delay
	for range recent {
		delay = min(delay*2, p.MaxDelay)
	}
	delay = min(delay, p.MaxDelay)
	delay -= time.Duration(float64(delay) * jitter / 4)
	return verdict{Restart: true, Delay: delay, Attempt: len(recent) + 1, History: append(recent, now)}
}

func jitter() float64 { return rand.Float64() } //nolint:gosec // spreads restarts, guards nothing

// defaultStallTimeout is how long a block may stand still, without progress of any kind, before it is started again. It is as
// long as the longest timeout of a collective, so that nothing which would go on is ended.
const defaultStallTimeout = 30 * time.Minute

// healthPolicy is the health block with defaults filled in. Start timeouts are generous: a cold inference server compiles
// for a minute, and a download of weights is not a failure.
func healthPolicy(m *schema.Health, k kind.Kind) schema.Health {
	h := schema.Health{StartTimeout: 5 * time.Minute, Interval: 5 * time.Second, Timeout: 10 * time.Second, Failures: 3, StopTimeout: 30 * time.Second, StallTimeout: defaultStallTimeout}
	if k == kind.Inference || k == kind.Trainer {
		h.StartTimeout = 20 * time.Minute
	}
	if m == nil {
		return h
	}
	set := func(dst *time.Duration, v time.Duration) {
		if v > 0 {
			*dst = v
		}
	}
	set(&h.StartTimeout, m.StartTimeout)
	set(&h.Interval, m.Interval)
	set(&h.Timeout, m.Timeout)
	set(&h.StopTimeout, m.StopTimeout)
	h.StallTimeout = m.StallTimeout
	if m.Failures > 0 {
		h.Failures = m.Failures
	}
	return h
}
