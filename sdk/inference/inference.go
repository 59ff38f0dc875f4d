// Package inference is the contract of inference plugins. The SDK serves the gateway (package gateway) in front of the
// engine that a plugin runs: authentication, holds, policy versions and weight updates are its work.
package inference

import (
	"context"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// New defines an inference plugin. C is its configuration, a struct with `recipe` tags (see spec.Of); factory makes a fresh
// plugin value for each attempt of a block. It panics when a tag is wrong.
func New[C any](name, summary string, factory func() Plugin[C], opts ...sdk.Option) *sdk.Definition {
	return sdk.Define(kind.Inference, name, summary, outputs.Inference{}, factory, run[C], opts...)
}

// Plugin is what an inference plugin implements. The SDK serves the gateway in front of it: Run starts the engine,
// tells host the replicas' addresses and calls Ready with an outputs.Inference of which only Model, Tokenizer and
// MaxModelLen need be set.
type Plugin[C any] interface {
	Run(ctx context.Context, req sdk.Request[C], host Host) error
	// UpdateWeights loads published weights into every replica and resets their caches. The gateway holds requests meanwhile.
	UpdateWeights(ctx context.Context, w sdk.Weights) error
	// Logprobs returns log p(token[i] | token[:i]) for i ≥ 1 under the weights that are served now (len(tokens)-1 values).
	Logprobs(ctx context.Context, tokens []int) ([]float64, error)
}

// Host is the Host of an inference plugin.
type Host interface {
	sdk.Host
	// Serve tells the gateway where the engine's replicas listen. Called again when they move or are lost.
	Serve(replicas ...Replica)
	// Loaded says which policy version the engine has just been started with (sdk.Request.Policy.Version when it loaded those weights).
	Loaded(version int64)
}

// Replica is one inference server behind the gateway.
type Replica struct {
	ID     string
	URL    string // http://127.0.0.1:port, without /v1
	APIKey string
}

// ReplicaLogprober is an inference plugin that can ask one replica alone for log-probabilities. With several replicas it is
// the only way to notice that one of them did not take an update; without it Plugin.Logprobs answers for each of them.
type ReplicaLogprober interface {
	ReplicaLogprobs(ctx context.Context, replica Replica, tokens []int) ([]float64, error)
}

// CacheSalter is an inference plugin whose engine keeps what it has computed of a prompt and tells such prompts apart by the
// field cache_salt, as vLLM does. The gateway then sends the policy version in it.
type CacheSalter interface{ CacheSalt() bool }

// PromptCacher is an inference plugin whose engine keeps what it has computed of the beginning of a prompt, in the manner of vLLM. It
// says how many tokens a prompt needs for a part of it to be kept, 0: nothing is. Each proof of the weights then also asks for a
// continuation through that cache.
type PromptCacher interface{ CachedPrompt() int }
