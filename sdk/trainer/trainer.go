// Package trainer is the contract of trainer plugins. The SDK serves a trainer's weights to sync blocks (package
// weightserver): a sync block asks for them over HTTP while the trainer waits between two steps.
package trainer

import (
	"context"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/trainer/weightserver"
)

// New defines a trainer. C is its configuration, a struct with `recipe` tags (see spec.Of); factory makes a fresh plugin value
// for each attempt of a block. It panics when a tag is wrong.
func New[C any](name, summary string, factory func() Plugin[C], opts ...sdk.Option) *sdk.Definition {
	return sdk.Define(kind.Trainer, name, summary, outputs.Trainer{}, factory, run[C], opts...)
}

// PublishRequest asks a trainer to write its current weights.
type PublishRequest = weightserver.PublishRequest

// Plugin is what a trainer implements.
type Plugin[C any] interface {
	Run(ctx context.Context, req sdk.Request[C], host Host) error
	// Publish writes the current weights so that inference can load them. It is called only while Run waits in Host.Sync.
	Publish(ctx context.Context, req PublishRequest) (sdk.Weights, error)
	// Logprobs is inference.Plugin.Logprobs under the trainer's weights; called only while Run waits in Host.Sync.
	Logprobs(ctx context.Context, tokens []int) ([]float64, error)
}

// Tokenizer is a trainer that can split a text into the model's tokens. A sync block proves the weights with a text that the
// model finds likely; without this it must make do with arbitrary token ids, on which server and trainer agree less exactly.
type Tokenizer interface {
	// Tokenize returns the ids of a text without special tokens; called only while Run waits in Host.Sync.
	Tokenize(ctx context.Context, text string) ([]int, error)
}

// Host is the Host of a trainer.
type Host interface {
	sdk.Host
	// Sync is called after each optimizer step, with the trainer's weights at rest. When a sync block wants this step's
	// weights it publishes them through Plugin.Publish, proves them through Plugin.Logprobs, waits until inference
	// serves them and returns the new policy version. Without a sync block, or between its periods, it returns at once.
	// A sync block that is declared but does not answer within its deadline is an error that names it.
	Sync(ctx context.Context, step int64) (version int64, err error)
	// Version is the current policy version.
	Version() int64
	// Turn is called when the trainer has what it needs for its next step. Where inference lives on the same GPU and gives its
	// memory back for training (see Shared) it returns when that has happened; else at once. The turn ends with the next Sync:
	// before it the trainer gives back whatever it needs for training alone. A step that comes to nothing must call Sync, too,
	// or inference sleeps on.
	Turn(ctx context.Context, step int64) error
	// Shared says whether inference and this trainer take turns on the GPU, as the attached sync block has it; false while none
	// is attached. A trainer that need not ask for turns may skip Turn while it is false.
	Shared() bool
}
