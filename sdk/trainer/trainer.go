// Package trainer is the contract of trainer plugins. The SDK serves a trainer's weights to sync blocks (package
// weightserver): a sync block asks for them over HTTP while the trainer waits between two steps.
package trainer

import (
	"context"

	"github.com/recipe-rl/recipe/internal/weightserver"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/define"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// New defines a trainer. C is its configuration, a struct with `recipe` tags (see spec.Of); factory makes a fresh
// plugin value for each attempt of a block. It panics when a tag is wrong.
func New[C any](name, summary string, factory func() Plugin[C], opts ...sdk.Option) *sdk.Definition {
	return define.New(kind.Trainer, name, summary, outputs.Trainer{}, factory, run[C],
		append(opts, counted)...)
}

// PublishRequest asks a trainer to write its current weights.
type PublishRequest = weightserver.PublishRequest

// Snapshot is what a trainer hands to Host.Sync.
type Snapshot = weightserver.Snapshot

// Ahead is a Snapshot of a trainer that calculates its next step while inference loads.
type Ahead = weightserver.Ahead

// Tokenizer is a Snapshot that can split a text.
type Tokenizer = weightserver.Tokenizer

// Plugin is what a trainer implements.
type Plugin[C any] interface {
	Run(ctx context.Context, req sdk.Request[C], host Host) error
}

// Pauser is a trainer that can wait before its next step. One that cannot waits for a batch while a run is paused:
// inference answers no requests then.
type Pauser interface {
	// Pause makes it wait, or go on. It returns when the step in progress has ended.
	Pause(ctx context.Context, paused bool) error
}

// Host is the Host of a trainer.
type Host interface {
	sdk.Host
	// Sync offers the weights as they are after an optimizer step; a trainer calls it before the first step, too. When
	// a sync block wants this step's weights, it publishes and verifies them through the snapshot, and Sync returns the
	// new policy version when inference serves it. Without a sync block, or between its periods, Sync returns at once.
	// The snapshot is used only until Sync returns, by one goroutine at a time; its methods run in other goroutines
	// than Sync's caller. One that is Ahead may be told before that its weights have been read. A sync block that is
	// declared but does not answer within its deadline is an error that names it.
	Sync(ctx context.Context, step int64, snapshot Snapshot) (version int64, err error)
	// Version is the current policy version: that which inference serves.
	Version() int64
	// VersionOf is the policy version of the weights after a step, for a checkpoint of them: that under which inference
	// serves them, or will when they are the next that it gets.
	VersionOf(step int64) int64
	// Turn is called when the trainer has what it needs for its next step. Where inference lives on the same GPU and
	// gives its memory back for training (see Shared) it returns when that has happened; else at once. The turn ends
	// with the next Sync: before it the trainer gives back whatever it needs for training alone. A step that comes to
	// nothing must call Sync, too, or inference sleeps on.
	Turn(ctx context.Context, step int64) error
	// Shared reports whether inference and this trainer take turns on the GPU, as the attached sync block has it; false
	// while none is attached. A trainer that need not ask for turns may skip Turn while it is false.
	Shared() bool
}
