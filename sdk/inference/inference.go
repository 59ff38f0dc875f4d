// Package inference is the contract of inference plugins. The SDK serves the gateway (package gateway) in front of
// the engine that a plugin starts: authentication, holds, policy versions and weight updates are its work, and so is
// the order of a start: the engine's replicas come up, those that hold other weights than the run has reached get
// them loaded, they are admitted, and the block is ready.
package inference

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/internal/gateway"
	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/define"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
)

// New defines an inference plugin. C is its configuration, a struct with `recipe` tags (see spec.Of); factory makes a
// fresh plugin value for each attempt of a block. It panics when a tag is wrong.
func New[C any](name, summary string, factory func() Plugin[C], opts ...sdk.Option) *sdk.Definition {
	return define.New(kind.Inference, name, summary, outputs.Inference{}, factory, run[C], opts...)
}

// Plugin is what an inference plugin implements.
type Plugin[C any] interface {
	// Start starts the engine. It may return before a replica is up; then the engine calls Host.Changed when its replicas
	// change. The engine runs until Stop is called, also when ctx ends.
	Start(ctx context.Context, req sdk.Request[C], host Host) (Engine, error)
}

// Engine is an engine that has been started. Its methods are safe for concurrent use. What else it can do is found by
// assertion: Sleeper, Adopter, TokenCounter, AnswerReader, CacheSalter, SaltedRouter, PromptCacher,
// UsageReporter.
type Engine interface {
	// Replicas are the servers that can serve requests or load weights now, each with the version of the weights that it
	// holds.
	Replicas() []Replica
	// Outputs are what the block gives, a struct described by its definition: an outputs.Inference of which only Model,
	// Tokenizer and MaxModelLen need be set, or one that embeds it. It is asked once, when there is a replica.
	Outputs() any
	// Load loads published weights into every replica and resets their caches. The gateway holds requests meanwhile. An
	// error reports that none took them, unless it is gateway.ReplicaErrors, which names those that did not.
	Load(ctx context.Context, w sdk.Weights) error
	// Logprobs returns log p(token[i] | token[:i]) for i ≥ 1 (len(tokens)-1 values) under the weights that a replica
	// serves now.
	Logprobs(ctx context.Context, replica Replica, tokens []int) ([]float64, error)
	// Wait returns when the engine has ended: after Stop with nil, else with the reason why it could not go on.
	Wait() error
	// Stop ends the engine and returns when all of its processes have ended.
	Stop(ctx context.Context) error
}

// Host takes the reports of an engine. That the block is ready is not among them: the SDK finds out.
type Host interface {
	// Changed says that the result of Replicas has changed. When it returns, requests and updates go to those replicas.
	Changed()
	// Phase reports a phase: starting, loading, ready, degraded. Message is for people.
	Phase(phase sdk.Phase, message string)
	// MemoryTaken reports, while the engine starts, that it holds all memory of its accelerators whose amount it decides
	// by what is free: a trainer on them may use the rest before the engine answers. False takes that back, for the
	// engine starts anew.
	MemoryTaken(taken bool)
	// Progress reports how far a start is; total 0 means unknown.
	Progress(step, total int64, unit string)
	// Metrics reports numbers by name at a policy version.
	Metrics(step int64, values map[string]float64)
	// Log writes one line to the block's log. Level is debug, info, warn or error.
	Log(level, message string)
	// SetHandle records what is needed to find the real program again after this process has died (pid, port, …).
	SetHandle([]byte)
	// Begin describes what the engine works on from now on, until End is called on what it returns.
	Begin(sdk.Activity) *sdk.Ongoing
	// Grace is how long the block may take once it is to stop.
	Grace() time.Duration
}

// Replica is one inference server behind the gateway, with the version of its weights: 0 is what the block's
// configuration names, UnknownVersion a server that only a weight update can bring to any version.
type Replica = gateway.Replica

// UnknownVersion is the version of weights that are not known.
const UnknownVersion = gateway.UnknownVersion

// TokenCounter is an Engine that can say how many tokens it has generated since it was started. An answer in one piece
// shows no progress before its last token: with the count, a long generation is distinguished from an engine that
// hangs.
type TokenCounter interface {
	GeneratedTokens(ctx context.Context) (float64, error)
}

// UsageReporter is an Engine whose servers report their usage. The gateway then sends each of them no more sequences at
// once than its KV cache holds. An engine that is none gets requests as they come.
type UsageReporter interface {
	UsageOf(ctx context.Context, replica Replica) (Usage, error)
	// Concurrency is how many sequences a replica gets at once, whatever it reports; 0: what it reports decides. After a
	// change the engine calls Host.Changed.
	Concurrency() int
}

// ErrServerAway is the error of UsageOf for a server that is not up now.
var ErrServerAway = gateway.ErrAway

// Usage is what a server reports about its work.
type Usage = gateway.Usage

// AnswerReader is an Engine that reads the answers of its model, by the parsers that belong to the chat template: calls
// of tools and reasoning. Sessions of programs ask for it. ErrNotRead leaves an answer to the gateway, which reads
// calls in the form of Hermes and Qwen models.
type AnswerReader interface {
	ReadAnswer(ctx context.Context, replica Replica, s Sampled) (Said, error)
}

// Sampled is an answer that an AnswerReader reads.
type Sampled = gateway.Sampled

// Said is what an AnswerReader has read in it.
type Said = gateway.Said

// ToolCall is a call of a tool in it.
type ToolCall = gateway.ToolCall

// ErrNotRead is the error of an AnswerReader without a parser for the answer.
var ErrNotRead = gateway.ErrNotRead

// CacheSalter is an Engine that keeps what it has computed of a prompt and tells such prompts apart by the field
// cache_salt, as vLLM does. The gateway then sends the policy version in it.
type CacheSalter interface{ CacheSalt() bool }

// SaltedRouter is a CacheSalter that knows on which routes beside /v1/completions and /v1/chat/completions its servers
// read cache_salt, such as /v1/messages; false: no server has been asked yet. The gateway proxies no other route that
// may use what was computed of earlier prompts.
type SaltedRouter interface{ SaltedRoutes() ([]string, bool) }

// PromptCacher is an Engine that keeps what it has computed of the beginning of a prompt, in the manner of vLLM. It
// says how many tokens a prompt needs for a part of it to be kept, 0: nothing is. Each check of the weights then also
// asks for a continuation through that cache.
type PromptCacher interface{ CachedPrompt() int }
