package sdk

import (
	"time"

	"github.com/recipe-rl/recipe/sdk/trace"
)

// Host is the block's view of the engine. Every method is safe for concurrent use and never blocks on the engine,
// except Sync.
type Host interface {
	// Ready reports that dependents may start now and gives them the outputs, a struct described by the definition.
	Ready(outputs any)
	// Phase reports a phase other than ready: starting, loading, degraded, draining. Message is for people.
	Phase(phase Phase, message string)
	// SetOutputs replaces outputs after Ready, for example a trainer's last checkpoint.
	SetOutputs(outputs any)
	// Progress reports how far a job is; total 0 means unknown.
	Progress(step, total int64, unit string)
	// Metrics reports numbers by name at a step (reward, loss, tokens_per_second, …).
	Metrics(step int64, values map[string]float64)
	// Log writes one line to the block's log. Level is debug, info, warn or error.
	Log(level, message string)
	// Checkpoint reports a checkpoint that is complete on disk.
	Checkpoint(CheckpointInfo)
	// Sample shows one scored completion.
	Sample(Sample)
	// Span records one span of a trace; see package trace.
	Span(trace.Span)
	// SetHandle records what is needed to find the real program again after this process has died (pid, port, …).
	SetHandle([]byte)
	// Listening records the host:port where the block serves: it becomes Request.Listen of its next attempt.
	Listening(address string)
	// Weights reports one completed weight update. Sync blocks call it.
	Weights(WeightsInfo)
	// Begin says what the block waits for or works on from now on, until End is called on what it returns. Use it for what
	// may last: it explains a run without progress. Nothing is stored, so it is cheap.
	Begin(Activity) *Ongoing
	// Activities is Begin for a block that knows its activities anyway: the function is called on each request,
	// concurrently with everything else, and must return at once.
	Activities(func() []Activity)
	// Grace is how long the block may take once Run's context has ended.
	Grace() time.Duration
}
