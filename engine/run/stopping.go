package run

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/engine/run/lifecycle"
	"github.com/recipe-rl/recipe/engine/state"
	"github.com/recipe-rl/recipe/schema/addr"
)

// Ending is a run whose blocks are being stopped.
type Ending struct {
	Status   state.Status `json:"status"` // of the run when it has ended
	Why      string       `json:"why"`
	Since    time.Time    `json:"since"`
	Stopping []Stopping   `json:"stopping"` // blocks that were asked to stop and have not ended, by address
}

// Stopping is a block that was asked to stop. Its process is killed when it has not ended at that time.
type Stopping struct {
	Address addr.Block `json:"address"`
	Asked   time.Time  `json:"asked"`
	Killed  time.Time  `json:"killed_at"`
}

// Ending returns the end of the run that has begun; nil: none has.
func (e *Engine) Ending(ctx context.Context) (*Ending, error) {
	var out *Ending
	err := e.ask(ctx, func(s *supervisor) error {
		if s.ending == nil {
			return nil
		}
		out = &Ending{Status: s.ending.status, Why: s.ending.why, Since: s.ending.since.UTC(), Stopping: []Stopping{}}
		for _, b := range s.sorted() {
			if b.Stage == lifecycle.Stopping {
				out.Stopping = append(out.Stopping, Stopping{b.addr(), b.stopOrdered.UTC(),
					b.stopOrdered.Add(b.attempt.health.StopTimeout + stopMargin).UTC()})
			}
		}
		return nil
	})
	return out, err
}
