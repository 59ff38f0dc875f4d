package run

import (
	"math/rand/v2"
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// restartPolicy is the restart block of b, or what holds without one.
func restartPolicy(m *decode.Restart) decode.Restart {
	if m == nil {
		return decode.DefaultRestart()
	}
	return *m
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
func decideRestart(p decode.Restart, history []time.Time, now time.Time, jitter float64) verdict {
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

func jitter() float64 { return rand.Float64() }

// healthPolicy is the health block of a block of a kind, or what holds without one.
func healthPolicy(m *decode.Health, k kind.Kind) decode.Health {
	if m == nil {
		return decode.DefaultHealth(k)
	}
	return *m
}

// timed sets how long a block may take to become ready, in the attribute for it, if its plugin has one.
func timed(config cty.Value, p *schema.PluginSchema, h decode.Health) cty.Value {
	if !limits(p) || config.IsNull() || !config.IsKnown() || !config.Type().IsObjectType() {
		return config
	}
	config, marks := config.Unmark()
	values := config.AsValueMap()
	values[decode.StartTimeout] = cty.StringVal(h.StartTimeout.String())
	return cty.ObjectVal(values).WithMarks(marks)
}

// limits reports whether a plugin watches its start itself.
func limits(p *schema.PluginSchema) bool {
	if p == nil {
		return false
	}
	a := p.Config.Attribute(decode.StartTimeout)
	return a != nil && a.Format == spec.FormatDuration
}
