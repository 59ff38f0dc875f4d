// Package server samples from the tiny language model and speaks HTTP as vLLM's OpenAI-compatible
// server does: completions with n, log-probabilities and token ids, chat, Atropos's /generate.
//
// One goroutine owns the decoder. At each step it admits waiting sequences, feeds one token (or a
// whole new prompt) of every active one to the model in a single batch, and lets finished ones go:
// continuous batching. Weights are replaced between two steps.
package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"

	"github.com/recipe-rl/recipe/plugins/tiny/lm"
)

// ErrClosed is returned by calls that Close interrupted, ErrBusy when more sequences wait than
// Options.MaxWaiting.
var (
	ErrClosed = errors.New("the inference engine has been stopped")
	ErrBusy   = errors.New("too many requests are waiting; try again later")
)

// Policy is a set of weights and the version they carry. Params are read only.
type Policy struct {
	Params  *lm.Params
	Version int64
}

// Options bound an Engine; zero fields get the defaults named here.
type Options struct {
	MaxBatch   int    // sequences decoded side by side; 256
	MaxWaiting int    // sequences that wait for a place; 16384
	Shards     int    // parts of a batch computed side by side; one a processor
	Seed       uint64 // of requests that bring no seed of their own
}

// Request asks for completions of one prompt.
type Request struct {
	Prompt    []int32
	N         int // completions
	MaxTokens int // of each
	Sampling  lm.Sampling
	// Stop ends a completion as soon as its text contains one of these; the text is cut before it.
	Stop []string
	// Seed makes the result depend on nothing but the request and the weights; nil: the engine's
	// own sequence of seeds.
	Seed *uint64
	// Alternatives is how many of the most likely tokens to report at each position.
	Alternatives int
	// Emit is called with every token as it is drawn, by the goroutine that decodes: it must not block.
	Emit func(Progress)
}

// Progress is one step of one completion.
type Progress struct {
	Index int // of the completion
	Token Token
	// Text is all of the completion's text that is certain by now: a stop text that has only begun
	// is held back.
	Text    string
	Finish  Finish // empty while the completion continues
	Stop    string
	Version int64 // of the policy that drew the token
}

// Token is one drawn token with its log-probability under the policy that drew it, before
// temperature and top-p.
type Token struct {
	ID           int32
	LogProb      float64
	Alternatives []Alternative
}

// Alternative is a token that could have been drawn.
type Alternative struct {
	ID      int32
	LogProb float64
}

// Finish explains why a completion ended.
type Finish string

// FinishStop: the model ended it, or a stop text came up. FinishLength: MaxTokens or the model's
// context was reached.
const (
	FinishStop   Finish = "stop"
	FinishLength Finish = "length"
)

// Completion is one result.
type Completion struct {
	Tokens []Token // the end token included
	Text   string  // without special tokens and without the stop text
	Finish Finish
	Stop   string // the stop text that ended it, if one did
	// First and Last are the policy versions that drew its first and last token.
	First, Last int64
}

// Stats say what an engine is doing and has done.
type Stats struct {
	Active          int64 `json:"active"`           // sequences being decoded
	Waiting         int64 `json:"waiting"`          // sequences that wait for a place
	PromptTokens    int64 `json:"prompt_tokens"`    // read since the start
	SampledTokens   int64 `json:"sampled_tokens"`   // drawn since the start
	FinishedSamples int64 `json:"finished_samples"` // completions since the start
}

// Engine decodes. Its methods may be called from any goroutine.
type Engine struct {
	tokenizer *lm.Tokenizer
	config    lm.Config
	options   Options
	policy    atomic.Pointer[Policy]
	jobs      chan *job
	quit      chan struct{}
	stopped   chan struct{}
	closing   atomic.Bool
	seeds     atomic.Uint64

	active, held                     atomic.Int64 // held: active and waiting
	promptTokens, sampled, completed atomic.Int64
}

// New starts an engine on a checkpoint's weights. Close must be called.
func New(from *lm.Checkpoint, version int64, o Options) (*Engine, error) {
	tokenizer, err := from.Tokenizer()
	if err != nil {
		return nil, fmt.Errorf("starting the inference engine: %w", err)
	}
	if o.MaxBatch <= 0 {
		o.MaxBatch = 256
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 16384
	}
	if o.Shards <= 0 {
		o.Shards = runtime.GOMAXPROCS(0)
	}
	e := &Engine{
		tokenizer: tokenizer, config: from.Params.Config, options: o,
		jobs: make(chan *job), quit: make(chan struct{}), stopped: make(chan struct{}),
	}
	e.policy.Store(&Policy{from.Params, version})
	go newLoop(e).run()
	return e, nil
}

// Close ends decoding and waits for it; running Generate calls return ErrClosed.
func (e *Engine) Close() {
	if !e.closing.Swap(true) {
		close(e.quit)
	}
	<-e.stopped
}

// Tokenizer is the tokenizer of the checkpoint the engine was started with.
func (e *Engine) Tokenizer() *lm.Tokenizer { return e.tokenizer }

// Config is the shape of the model.
func (e *Engine) Config() lm.Config { return e.config }

// Policy is what is served now.
func (e *Engine) Policy() Policy { return *e.policy.Load() }

// Stats is a snapshot.
func (e *Engine) Stats() Stats {
	active := e.active.Load()
	return Stats{
		Active: active, Waiting: max(e.held.Load()-active, 0), PromptTokens: e.promptTokens.Load(),
		SampledTokens: e.sampled.Load(), FinishedSamples: e.completed.Load(),
	}
}

// Swap serves other weights from the next decoding step on; nobody may write to them any more.
// Sequences under way are read again with the new weights, so that old keys and values never mix
// with them.
func (e *Engine) Swap(params *lm.Params, version int64) error {
	if params.Config != e.config {
		return fmt.Errorf(
			"replacing weights: the served model has the shape %+v, the new weights %+v; restart the server to change the model",
			e.config, params.Config)
	}
	if !params.Finite() {
		return errors.New("replacing weights: the new weights contain NaN or infinity; the old ones stay")
	}
	e.policy.Store(&Policy{params, version})
	return nil
}

// LogProbs is the log-probability of each token given those before it (0 for the first), and the
// policy version that says so.
func (e *Engine) LogProbs(tokens []int32) ([]float64, int64, error) {
	if err := e.config.CheckTokens(tokens); err != nil {
		return nil, 0, err
	}
	p := e.policy.Load()
	var a lm.Activations
	return p.Params.LogProbs(&a, tokens), p.Version, nil
}

// Generate draws the completions of one request. It returns early with ctx's error when ctx ends,
// and the decoder then drops the sequences.
func (e *Engine) Generate(ctx context.Context, r Request) ([]Completion, error) {
	if err := e.check(&r); err != nil {
		return nil, err
	}
	if held := e.held.Add(int64(r.N)); held > int64(e.options.MaxBatch+e.options.MaxWaiting) {
		e.held.Add(-int64(r.N))
		return nil, ErrBusy
	}
	j := e.newJob(ctx, r)
	select {
	case e.jobs <- j:
	case <-ctx.Done():
		e.held.Add(-int64(r.N))
		return nil, ctx.Err()
	case <-e.stopped:
		return nil, ErrClosed
	}
	select {
	case <-j.done:
		return j.results, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-e.stopped:
		return nil, ErrClosed
	}
}

func (e *Engine) check(r *Request) error {
	if err := e.config.CheckTokens(r.Prompt); err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	if r.N < 1 {
		return fmt.Errorf("n: want 1 or more, got %d", r.N)
	}
	if room := e.config.Context - len(r.Prompt); r.MaxTokens < 1 || r.MaxTokens > room {
		return fmt.Errorf("max_tokens: the model's context is %d tokens and the prompt has %d, so want 1 to %d, got %d",
			e.config.Context, len(r.Prompt), room, r.MaxTokens)
	}
	return r.Sampling.Validate()
}

func (e *Engine) newJob(ctx context.Context, r Request) *job {
	seed := e.options.Seed ^ 0x9e3779b97f4a7c15
	if r.Seed != nil {
		seed = *r.Seed
	} else {
		seed += e.seeds.Add(1)
	}
	j := &job{ctx: ctx, request: r, results: make([]Completion, r.N), left: r.N, done: make(chan struct{})}
	for i := range r.N {
		j.sequences = append(j.sequences, &sequence{job: j, index: i, rng: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	return j
}
