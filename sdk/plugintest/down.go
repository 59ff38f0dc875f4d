package plugintest

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
)

var _ inference.Adopter = (*fake)(nil)

// Down implements inference.Adopter: FakeConfig.Down.
func (f *fake) Down() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config.Down
}

// Adopt implements inference.Adopter. What it is told last is loaded when it comes up.
func (f *fake) Adopt(w sdk.Weights) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.adopted = &w
}

// awaitUp waits while it is down, as the servers of other plugins are waited for.
func (f *fake) awaitUp(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for f.Down() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Update implements sdk.Updater.
func (f *fake) Update(ctx context.Context, c FakeConfig) error {
	f.mu.Lock()
	f.config = c
	w := f.adopted
	if !c.Down {
		f.adopted = nil
	}
	f.mu.Unlock()
	if !c.Down && w != nil {
		if err := f.Load(ctx, *w); err != nil {
			return err
		}
	}
	f.host.Changed()
	return nil
}
