package sync

import (
	"context"
	"fmt"

	"github.com/recipe-rl/recipe/sdk"
)

// waitFor reports that the block waits for another one, until the returned function is called.
func (s *syncer) waitFor(address, format string, args ...any) (done func()) {
	return s.host.Begin(sdk.Activity{On: address, What: fmt.Sprintf(format, args...)}).End
}

// rest reports that there is nothing to do before the trainer's next step.
func (s *syncer) rest() (done func()) {
	return s.host.Begin(sdk.Activity{On: s.config.Trainer.Address, What: "its next weights", Rest: true}).End
}

// awaitWeights waits for the trainer to write its weights.
func (s *syncer) awaitWeights(ctx context.Context, u *update) error {
	defer s.waitFor(s.config.Trainer.Address, "the weights of policy version %d", u.Version)()
	return s.publish(ctx, u)
}
