// Package environment makes an environment from two functions: Next gives a task, Score says how good a completion is.
// The package does the rest: it samples groups of completions from the inference block, with their token ids and
// log-probabilities, scores them, and posts them to the trajectory API as the trainer expects them; it waits for the
// trainer, pauses when there is enough to train on, retries what may pass, and measures rewards over all groups, also
// those that teach nothing and are not sent.
package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/internal/define"
	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Environment is what an author writes. Next and Score are called from several goroutines at once.
type Environment interface {
	// Next returns the next task to sample completions of. It may block; io.EOF says that there are no more.
	Next(ctx context.Context) (Task, error)
	// Score describes how good a completion is; higher is better. An error means that the score is unknown: then this
	// completion is left out of its group, because an invented score would train the model wrongly. It has
	// score_timeout, after which ctx is done.
	Score(ctx context.Context, task Task, completion Completion) (float64, error)
}

// GroupScorer is an environment that scores all completions of a task together, as reward functions that compare them
// need. It keeps score_timeout itself.
type GroupScorer interface {
	// ScoreGroup returns a Scored for each completion, in order. step is how many steps the trainer has made. The error
	// is of all of them.
	ScoreGroup(ctx context.Context, task Task, completions []Completion, step int64) ([]Scored, error)
}

// Scored is the score of a completion, or why it has none.
type Scored struct {
	Score float64
	Err   error
}

// Evaluable is an environment with a held-out set, on which it can be evaluated on demand.
type Evaluable interface {
	// EvaluationTasks returns the held-out set, always in the same order.
	EvaluationTasks(ctx context.Context) ([]Task, error)
}

// Closer is an environment that holds resources to release.
type Closer interface {
	Close() error
}

// Monitored is an environment that can fail by itself, as one whose program may die: then its block fails at once, and
// not when it is next called.
type Monitored interface {
	// Failed is closed when the environment cannot be used any more; Err then says why.
	Failed() <-chan struct{}
	Err() error
}

// EOF is what Next returns when there are no more tasks.
var EOF = io.EOF

// Task is one prompt. Exactly one of Prompt and Messages is set.
type Task struct {
	Prompt   string    // sent as it is
	Messages []Message // sent as a conversation: the server applies the model's chat template
	// Template is what the chat template gets besides the messages of a conversation.
	Template Template
	Expected string // the right answer, for people: it is recorded with the completions. Empty: none
	Data     any    // the author's own: the right answer, the test cases, …
	Release  func() // called once, when nothing more is done with the task; may be nil
}

// Template is what a chat template gets besides messages.
type Template struct {
	Tools     json.RawMessage `json:"tools,omitempty"`                // a list of JSON schemas of functions; nil: none
	Arguments json.RawMessage `json:"chat_template_kwargs,omitempty"` // an object, such as {"enable_thinking": false}
}

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"` // system, user, assistant or tool
	Content string `json:"content"`
	// ToolCalls are the calls of an assistant's turn as an OpenAI-compatible server takes them: a list, whose arguments
	// are JSON texts. The chat template writes them.
	ToolCalls json.RawMessage `json:"tool_calls,omitempty"`
	// ToolCallID and Name say which call and tool a turn of the role tool answers.
	ToolCallID string `json:"tool_call_id,omitempty"`
	Name       string `json:"name,omitempty"`
}

// Completion is one answer of the model.
type Completion struct {
	Text     string
	Finish   string // "stop": it ended by itself; "length": it was cut off at max_tokens
	Stop     string // the stop text that ended it, which is not in Text; "": none did
	Tokens   []int  // without the prompt
	Logprobs []float64
	// Messages is what followed the task's conversation, answers and what the model was given between them, where
	// recorded rollouts of several turns are scored again; Text is the last answer. nil: Text is all.
	Messages []Message

	metrics *metrics
}

// said is what the model said, as its tokens have it and as it is recorded: with the stop text.
func (c Completion) said() Message { return Message{Role: "assistant", Content: c.Text + c.Stop} }

// Metric records a number beside the score, such as one part of it. It is not trained on: the mean over completions is
// reported as metrics/NAME, and env try and evaluate show it. Names are few and the same for all tasks. Score and
// Step call it, from one goroutine at a time.
func (c Completion) Metric(name string, value float64) { c.metrics.set(name, value) }

// Settings are the attributes that every environment made with this package has. An author's configuration struct
// embeds them.
type Settings struct {
	Inference           spec.Ref      `recipe:"inference" required:"true" reference:"inference" doc:"The inference block that samples"`
	Trajectories        *spec.Ref     `recipe:"trajectories" reference:"trajectories" doc:"The trajectory API that takes the groups. Default: the recipe's only one"`
	GroupSize           int64         `recipe:"group_size" default:"8" min:"1" max:"1024" unit:"completions" doc:"Completions per prompt"`
	MaxTokens           int64         `recipe:"max_tokens" default:"512" min:"1" unit:"tokens" doc:"Longest completion"`
	Temperature         float64       `recipe:"temperature" default:"1" min:"0" max:"2" doc:"Of sampling. 1 keeps the log-probabilities of server and trainer comparable"`
	TopP                float64       `recipe:"top_p" default:"1" min:"0" max:"1" doc:"Of sampling; below 1 the sampled tokens are not those of the trained policy"`
	TopK                *int64        `recipe:"top_k" min:"1" unit:"tokens" doc:"Samples only from the K most likely tokens; left out: from all. A value below the size of the vocabulary makes the sampling distribution differ from the policy that is trained"`
	MinP                *float64      `recipe:"min_p" min:"0" max:"1" doc:"Samples only from tokens that are at least this fraction as likely as the most likely token; left out: from all. A value above 0 makes the sampling distribution differ from the policy that is trained"`
	RepetitionPenalty   *float64      `recipe:"repetition_penalty" min:"0" max:"2" doc:"Above 1: tokens that are already in the sequence become less likely; below 1: more likely; left out: unchanged. A value other than 1 makes the sampling distribution differ from the policy that is trained"`
	RequestSeed         *int64        `recipe:"sampling_seed" min:"0" max:"2147483647" doc:"Each request has a seed made of this and of the number of its task, so that the same weights answer the same; with deterministic = true in place of the environment's seed. Left out: the server's own sequence of seeds"`
	Stop                []string      `recipe:"stop" doc:"Texts at which a completion ends"`
	Concurrency         int64         `recipe:"concurrency" default:"0" min:"0" unit:"groups" doc:"Groups that are sampled at once. 0: all that may be ahead of training (max_batches_offpolicy), at most 256: the more there are at once, the more tokens inference samples in the same time"`
	MaxBatchesOffpolicy int64         `recipe:"max_batches_offpolicy" default:"0" min:"0" unit:"batches" doc:"How far sampling may run ahead of training, groups in flight included. More keeps inference busier and trains on older samples. 0: 1, and 2 where answers go on while new weights come (sync.weights: in_flight) and max_staleness allows groups that are 2 versions old"`
	Deterministic       bool          `recipe:"deterministic" default:"false" doc:"Leave nothing to time: tasks and their groups stay in order, each request has a seed made of the environment's seed and the number of its task, and a batch is sampled when the trainer asks for it, with the weights that it has published by then. Inference and training take turns, so a run takes longer. The plan says what else decides the weights"`
	Weight              float64       `recipe:"weight" default:"1" min:"0" doc:"Of the groups that wait, how often one of this environment is taken, against the weights of the others. Where the trainer waits for groups it takes all of them, in the proportion in which they are sampled: min_batch_allocation of the environment that shall have more holds a share"`
	MinBatchAllocation  *float64      `recipe:"min_batch_allocation" min:"0" max:"1" doc:"Part of every batch that must come from this environment"`
	DropUninformative   bool          `recipe:"drop_uninformative" default:"true" doc:"Leave out groups whose scores are all equal: they have no advantage to learn from. They count in the metrics all the same"`
	Curriculum          *Curriculum   `recipe:"curriculum,block" doc:"Draws the tasks whose answers differ, and passes over those that are nearly always right or wrong"`
	MinRollouts         int64         `recipe:"min_rollouts" default:"0" min:"0" unit:"completions" doc:"Completions of a group that must have a score. One that fails, raises or takes too long is masked and does not count; a group with fewer is left out whole. 0: half of group_size, and 2 at least"`
	ScoreTimeout        time.Duration `recipe:"score_timeout" default:"2m" min:"0s" doc:"How long the score of one completion may take; 0s: as long as it likes. Then it is ended, and the completion is left out of its group. Environments with rollouts have rollout_timeout or episode_timeout besides"`
	MaxTail             float64       `recipe:"max_tail" default:"0" min:"0" doc:"Ends and leaves out a group that takes more than this many times the median time of the last 64 groups, for example 5; 0: none. A batch waits for its slowest group. What is left out is mostly long answers, so the policy learns to answer briefly: use it where a few answers hang, and watch groups_stale"`
	EvaluationOnly      bool          `recipe:"evaluation_only" default:"false" doc:"Samples nothing for training: only evaluations ask it. No trainer lists it"`
	RequestTimeout      time.Duration `recipe:"request_timeout" default:"20m" min:"1s" doc:"How long one group may take to sample, waiting for a weight update or a restart included"`
}

// settings lets a generic function reach the embedded Settings.
func (s Settings) settings() Settings { return s }

// ScoreLimit is how long one score may take.
func (s Settings) ScoreLimit() time.Duration { return s.ScoreTimeout }

// minRollouts is how many completions of a group must have a score.
func (s Settings) minRollouts() int {
	n := int(s.MinRollouts)
	if n == 0 {
		n = max(2, (int(s.GroupSize)+1)/2)
	}
	return min(n, int(s.GroupSize))
}

// Config is the configuration of an environment: a struct that embeds Settings.
type Config interface{ settings() Settings }

// Validator is a Config that finds mistakes which a schema cannot express, such as two attributes that exclude each
// other. It touches nothing: no file, no network, no process. `recipe validate` and `plan` ask it of environments that
// are built in, where an attribute whose value is not known yet is zero, and every environment's is asked when its
// block starts.
type Validator interface {
	Validate() []spec.Problem
}

// Setup is what an environment is made with.
type Setup[C Config] struct {
	Config    C
	Name      string // under which the environment registers: the last part of its address
	Dir       string // its own directory
	RecipeDir string // relative paths of the recipe are relative to it
	// Environment holds the variables of the recipe's environment_variables.
	Environment map[string]string
	Log         func(level, message string)
	Block       sdk.Block    // what else the block is started with, such as its Python
	SetHandle   func([]byte) // as Host.SetHandle, for an environment that starts programs
	Host        sdk.Host
}

// Define makes the definition of an environment plugin. Open makes the environment when the block starts; it may load
// data, and its error fails the block. When E has EvaluationTasks, the plugin can be evaluated; when C is a Validator,
// it is asked before anything runs.
func Define[C Config, E Environment](
	name, summary string, open func(ctx context.Context, setup Setup[C]) (E, error), opts ...sdk.Option,
) *sdk.Definition {
	return New(name, summary, factory(open, oneAnswer[C, E], restores[E]()), declared(opts)...)
}

// TryDefine is Define for a definition that is made of what a user has written: a mistake in it is an error.
func TryDefine[C Config, E Environment](
	name, summary string, open func(ctx context.Context, setup Setup[C]) (E, error), opts ...sdk.Option,
) (*sdk.Definition, error) {
	return define.Try(kind.Environment, name, summary, outputs.Environment{},
		factory(open, oneAnswer[C, E], restores[E]()), run[C], declared(opts)...)
}

// restores reports whether environments of a type are Restorers.
func restores[E any]() bool {
	var zero E
	_, ok := any(zero).(Restorer)
	return ok
}

func oneAnswer[C Config, E Environment](env E, _ C, with rolling) roller {
	return &single{env: env, ask: with.ask, stages: with.stages, step: with.step, timeout: with.scoreTimeout,
		address: with.address}
}

// factory makes the services of blocks. Restores: what is recorded of their groups can be scored again.
func factory[C Config, E any](
	open func(context.Context, Setup[C]) (E, error), rolls func(env E, config C, with rolling) roller, restores bool,
) func() sdk.Service[C] {
	var zero E
	_, evaluable := any(zero).(Evaluable)
	return func() sdk.Service[C] {
		r := &runner[C, E]{open: open, rolls: rolls}
		switch {
		case evaluable && restores:
			return &evaluatedRescoring[C, E]{&evaluated[C, E]{r}}
		case evaluable:
			return &evaluated[C, E]{r}
		case restores:
			return &rescoring[C, E]{r}
		}
		return r
	}
}

// evaluated is a runner whose environment can be evaluated.
type evaluated[C Config, E any] struct{ *runner[C, E] }

var _ sdk.Evaluator = (*evaluated[Settings, Environment])(nil)

// check finds what a schema cannot say.
func (t Task) check() error {
	if (t.Prompt == "") == (len(t.Messages) == 0) {
		return fmt.Errorf("the environment's Next returned a task with both or neither of Prompt and Messages; set one")
	}
	for i, m := range t.Messages {
		if m.Role == "" {
			return fmt.Errorf("the environment's Next returned a task whose message %d of %d has no Role; set system, user or "+
				"assistant", i+1, len(t.Messages))
		}
	}
	return nil
}
