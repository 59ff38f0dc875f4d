package plan

import (
	"github.com/recipe-rl/recipe/schema"
	"github.com/recipe-rl/recipe/schema/decode"
)

// Tracker is one tracker that an apply would pass the run on to.
type Tracker struct {
	Tracker string `json:"tracker"` // wandb, tensorboard, …
	Name    string `json:"name"`    // of the block
	// Missing describes what the tracker lacks on this machine and what to do; empty: nothing is known to be missing.
	Missing string `json:"missing,omitempty"`
}

func trackers(r *schema.Recipe, missing func(decode.Tracking) string) []Tracker {
	out := make([]Tracker, 0, len(r.Trackers))
	for _, t := range r.Trackers {
		one := Tracker{Tracker: t.Tracker, Name: t.Name}
		if missing != nil {
			one.Missing = missing(t)
		}
		out = append(out, one)
	}
	return out
}
