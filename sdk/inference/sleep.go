package inference

import "context"

// Sleeper is an Engine that can release the memory of its GPU while a trainer uses it. The only requests in flight at a
// sleeping engine are those that its own pause keeps.
//
// Load wakes an engine that sleeps: first as far as the weights need it, and for the rest when they are loaded, so that
// both sides of the GPU's memory are needed as late as possible.
type Sleeper interface {
	// Sleep returns when no replica holds memory for weights and KV cache any more, also not one that was just being
	// started. Replicas that end while the block sleeps are started again when it wakes.
	Sleep(ctx context.Context, level SleepLevel) error
	// Wake brings the engine back to the weights that it served before it slept. A replica that cannot wake is started
	// again, and reported to the host when it is ready. It is no error if nothing sleeps.
	Wake(ctx context.Context) error
}

// SleepLevel describes what happens to the weights of an engine that sleeps; the numbers are vLLM's.
type SleepLevel int

// The levels of sleep.
const (
	SleepKeep SleepLevel = 1 // weights go to the host's memory and come back at wake-up
	SleepDrop SleepLevel = 2 // weights are dropped: faster, and possible only when new ones come at wake-up
)
