package sdk

import (
	"context"
	"encoding/json"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// Service is a plugin of a kind that needs nothing beyond Run: environment, trajectories and sync.
type Service[C any] interface {
	Run(ctx context.Context, req Request[C], host Host) error
}

// Updater takes over new values of attributes that change live.
type Updater[C any] interface {
	Update(ctx context.Context, config C) error
}

// Evaluator is an environment that can be evaluated on demand. Limit 0 means its whole held-out set.
type Evaluator interface {
	Evaluate(ctx context.Context, limit int) (metrics map[string]float64, policyVersion int64, err error)
}

// RecordedEvaluator is an Evaluator that also returns every completion of its evaluation, for the run's record.
type RecordedEvaluator interface {
	EvaluateRecorded(ctx context.Context, limit int) (map[string]float64, TaskScores, error)
}

// TaskEvaluator is an Evaluator that also gives the scores of each held-out task, for estimates such as pass@k.
type TaskEvaluator interface {
	EvaluateTasks(ctx context.Context, req EvaluateTasks) (TaskScores, error)
}

// EvaluateTasks asks for completions of the held-out tasks from number First on.
type EvaluateTasks struct {
	First, Limit int     // Limit 0: to the end
	Samples      int     // completions per task, at least 1
	Temperature  float64 // of sampling
	// Seed, with the number of a task, makes the seed of its requests, where the environment sets none; nil: the server's
	// own sequence. With it the same weights answer the same, as far as the server is deterministic.
	Seed *int64
}

// TaskScores are the scores of held-out tasks.
type TaskScores struct {
	Tasks         int // in the whole held-out set
	Results       []TaskScore
	PolicyVersion int64 // the oldest that answered
}

// TaskScore holds the scores of one task's completions.
type TaskScore struct {
	Task   int       `json:"task"`   // its number in the held-out set, from 0
	Digest string    `json:"digest"` // of its prompt
	Prompt string    `json:"prompt"` // its end, for people
	Scores []float64 `json:"scores"`
	// Failed explains why other completions of the task have no score, one text each. They count as not passed.
	Failed []string `json:"failed,omitempty"`
	// Metrics are the means of the numbers that the environment gave beside the scores, by name.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Messages is the conversation that the model was given; nil: it was given the text Prompt as it is, or the
	// environment made the conversation during the rollout.
	Messages json.RawMessage `json:"messages,omitempty"`
	// Expected is the right answer, for people; empty: not known.
	Expected string `json:"expected,omitempty"`
	// Versions are the oldest and the newest policy version that answered; nil: not known.
	Versions []int64 `json:"policy_versions,omitempty"`
	// Completions are all completions of the task, also those without a score; nil: the plugin returns scores only.
	Completions []EvaluatedCompletion `json:"completions,omitempty"`
	// Group holds the same as a group (docs/data-format.md), with tokens; nil: no tokens are known.
	Group json.RawMessage `json:"-"`
}

// EvaluatedCompletion is one completion of a held-out task.
type EvaluatedCompletion struct {
	Text  string   `json:"text"`  // the last answer of the model
	Score *float64 `json:"score"` // nil: it has none, and Failed holds the reason
	// Metrics are the numbers beside the score, such as the value of each reward function, by name.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	Finish  string             `json:"finish_reason,omitempty"` // "stop" or "length"
	Failed  string             `json:"failed,omitempty"`
	Tokens  int                `json:"tokens"` // that were sampled, over all turns
	// Messages is the whole conversation when it has several answers.
	Messages json.RawMessage `json:"messages,omitempty"`
	Agent    string          `json:"agent,omitempty"` // of an environment with several agents
}

// Rescorer is an environment that scores recorded completions again, as if they had just been sampled. It is called
// from several goroutines at once.
type Rescorer interface {
	// Rescore scores a group. An error means that the environment cannot be used any more.
	Rescore(ctx context.Context, group RecordedGroup) (RescoredGroup, error)
}

// RecordedGroup is what a scorer was given of a group, as the record of samples has it.
type RecordedGroup struct {
	Task     json.RawMessage // of the group (docs/data-format.md)
	Expected string          // the right answer, for people
	// Messages is the conversation that the model was given; with a text as prompt it is one message of the role user.
	Messages    json.RawMessage
	Completions []RecordedCompletion
}

// RecordedCompletion is one completion of a RecordedGroup.
type RecordedCompletion struct {
	Text     string // without Stop
	Finish   string // "stop" or "length"
	Stop     string // the text that ended it; empty: none did
	Tokens   []int
	Logprobs []float64
	// Messages are the turns that followed the group's conversation, where a rollout has several; Text is the last
	// answer. nil: Text is all.
	Messages json.RawMessage
}

// RescoredGroup holds the scores of a RecordedGroup.
type RescoredGroup struct {
	Completions []RescoredCompletion // in order; none where Unable is set
	Unable      string               // why the group cannot be scored, whatever its completions are
}

// RescoredCompletion is the score of one completion.
type RescoredCompletion struct {
	Score   *float64           `json:"score"` // nil: it has none, and Failed holds the reason
	Failed  string             `json:"failed,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Checkpointer is a trainer that can write a checkpoint between two steps, when asked.
type Checkpointer interface {
	SaveCheckpoint(ctx context.Context) (CheckpointInfo, error)
}

// Validator finds mistakes that a schema cannot express. It touches nothing: no file, no network, no process.
type Validator[C any] interface {
	Validate(config C) []spec.Problem
}

// Planner says what a block will need, without touching anything but local files that the config names. It may ask the
// program itself, through Placement.Python, what is wrong with the configuration, if that takes no more than a second
// or two.
type Planner[C any] interface {
	Plan(config C, placement Placement) (Estimate, []spec.Problem)
}

// Estimate is what a block will need, each amount with the sum that leads to it.
type Estimate struct {
	Amounts []Amount
	Notes   []string
	// compared between blocks that refer to each other: "tokenizer", "max_model_len", "group_size", …
	Facts map[string]string
}

// Amount is one need.
type Amount struct {
	Resource string  // gpu_memory, host_memory, disk (bytes) or port (number)
	Part     string  // weights, gradients, optimizer, activations, kv_cache, …
	Value    float64 // bytes, or the port
	How      string  // the sum in words: "1.54 B parameters × 2 bytes"
}

// NodesUser is a plugin whose blocks may have several machines: placement { nodes = 2 }. It finds them by package
// sdk/kit/nodes.
type NodesUser interface{ UsesNodes() }

// Preparer does what a block can do before the blocks that it refers to are ready: a trainer imports PyTorch and loads
// its weights while inference starts. Run follows on the same plugin value, which keeps what was prepared.
//
// In req, values that are not known yet are missing: outputs of other blocks, and what follows from them. Anything else
// may have changed as well when Run is called, so Run compares what it relies on.
//
// Prepare returns soon after started is closed, and Run is called then. It may return earlier, when nothing is left to
// do and nothing would have to be undone. Its context ends when the block is stopped before it was started: Prepare
// then undoes what it did. An error fails the block. The host takes everything but outputs. The phase is preparing,
// whatever Prepare reports, until it reports prepared or returns.
type Preparer[C any] interface {
	Prepare(ctx context.Context, req Request[C], host Host, started <-chan struct{}) error
}
