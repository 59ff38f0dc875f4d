package decode

import (
	"time"

	"github.com/zclconf/go-cty/cty"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// DefaultHealth holds the defaults of the health block for a kind. A server that loads a model, a trainer and an
// environment may have to download or to compile before they are ready. The stall timeout is as long as the longest
// timeout of a collective, so that a block that would recover by itself is not restarted. A trainer writes a checkpoint
// before it ends: with all weights of a model of 1.5B in float32 it has 18 GB, which takes some disks minutes.
func DefaultHealth(k kind.Kind) Health {
	h := Health{StartTimeout: 5 * time.Minute, Interval: 5 * time.Second, Timeout: 10 * time.Second, Failures: 3,
		StopTimeout: 30 * time.Second, StallTimeout: 30 * time.Minute}
	switch k {
	case kind.Inference, kind.Trainer, kind.Environment:
		h.StartTimeout = 20 * time.Minute
	default:
	}
	if k == kind.Trainer {
		h.StopTimeout = 5 * time.Minute
	}
	return h
}

// DefaultRestart holds the defaults of the restart block.
func DefaultRestart() Restart {
	return Restart{Attempts: 3, Window: 10 * time.Minute, Delay: time.Second, MaxDelay: time.Minute, Mode: "fail"}
}

// StartTimeout is the attribute that tells a plugin how long its block may take to become ready. It is set by
// health { start_timeout }; setting it in the block itself is the older form.
const StartTimeout = "start_timeout"

// olderStartTimeout is start_timeout as an attribute of the block's plugin.
func olderStartTimeout(s *spec.Schema, config cty.Value) (time.Duration, bool) {
	if a := s.Attribute(StartTimeout); a == nil || a.Format != spec.FormatDuration || !config.IsKnown() ||
		config.IsNull() || !config.Type().IsObjectType() {
		return 0, false
	}
	v, _ := config.GetAttr(StartTimeout).Unmark()
	if !v.IsKnown() || v.IsNull() || v.Type() != cty.String {
		return 0, false
	}
	d, err := time.ParseDuration(v.AsString())
	return d, err == nil && d > 0
}

// or gives the value of a pointer, or the default when it was not set.
func or[T any](set *T, fallback T) T {
	if set != nil {
		return *set
	}
	return fallback
}

func (b healthBlock) health(k kind.Kind) *Health {
	d := DefaultHealth(k)
	return &Health{
		StartTimeout: or(b.StartTimeout, d.StartTimeout), Interval: or(b.Interval, d.Interval),
		Timeout:  or(b.Timeout, d.Timeout),
		Failures: or(b.Failures, d.Failures), StopTimeout: or(b.StopTimeout, d.StopTimeout),
		StallTimeout: or(b.StallTimeout, d.StallTimeout),
	}
}

func (b restartBlock) restart() *Restart {
	d := DefaultRestart()
	return &Restart{
		Attempts: or(b.Attempts, d.Attempts), Window: or(b.Window, d.Window), Delay: or(b.Delay, d.Delay),
		MaxDelay: or(b.MaxDelay, d.MaxDelay), Mode: or(b.Mode, d.Mode),
	}
}
