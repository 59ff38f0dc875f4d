// Package sdk is what the author of a plugin imports.
//
// A plugin implements the small interface of its kind. All of them share Run: it is called once, it does the block's
// whole work, it calls Host.Ready when dependents may start, and it returns when the job is done or when its context
// ends. Abilities that not every plugin has (Updater, Evaluator, Checkpointer, Planner, Preparer,
// Validator) are optional interfaces, found by assertion. Everything else comes with the SDK: the process, TLS, leases
// and events; for inference the gateway; for trainers the control endpoint from which a sync block takes weights.
package sdk

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Request is everything that a plugin is started with. C is its configuration struct.
type Request[C any] struct {
	Block
	Config C
}

// Block describes the block that a plugin runs, apart from its configuration.
type Block struct {
	Address       string // inference.vllm.policy
	RunID         string
	Recipe        string
	Dir           string // the block's own directory, inside the run directory; exists, mode 0700
	RunDir        string
	RecipeDir     string // relative paths in a recipe are relative to this
	CheckpointDir string // of this block; exists
	Environment   map[string]string
	Placement     Placement
	Runtime       Runtime
	Token         string // bearer token that the block's data endpoint demands
	ControlToken  string // bearer token that its control endpoint demands
	// host:port of an earlier attempt; serve there again if it is free, so that dependents keep their address
	Listen   string
	Policy   Policy // what this run has reached; Version 0: nothing yet
	SyncedBy []string
	Handle   []byte // what Host.SetHandle recorded in an earlier attempt; nil: none
	Resume   bool   // continue from the newest checkpoint in CheckpointDir
	// SharesDevices says that another block of the run is on an accelerator of this one, or may be because one of them
	// does not name its own.
	SharesDevices bool
}

// Placement is where the block runs.
type Placement struct {
	GPUs     int
	Devices  []string
	Executor string
	Host     string
}

// Count is how many GPUs the block has; 0: it runs on the CPU.
func (p Placement) Count() int { return max(p.GPUs, len(p.Devices)) }

// Runtime is the Python that the block's program runs in.
type Runtime struct {
	Python       string
	Requirements []string
	Venv         string
}

// Policy is a version of the policy and where its weights can be loaded from.
type Policy struct {
	Version int64
	Weights string // path or URI; empty: only a sync block can bring them
	Format  string // "tiny", "hf", "lora", …
}

// Host is the block's view of the engine. Every method is safe for concurrent use and never blocks on the engine,
// except Sync.
type Host interface {
	// Ready says that dependents may start now and gives them the outputs, a struct described by the definition.
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

// Phase is where a block stands.
type Phase string

// The phases of a block.
const (
	Pending   Phase = "pending"
	Preparing Phase = "preparing" // it does what it can before what it refers to is ready
	Prepared  Phase = "prepared"  // nothing more can be done before that
	Starting  Phase = "starting"
	Loading   Phase = "loading"
	Ready     Phase = "ready"
	Degraded  Phase = "degraded"
	Draining  Phase = "draining"
	Completed Phase = "completed" // a job that has done its work
	Stopped   Phase = "stopped"
	Failed    Phase = "failed"
)

// Over says that this phase is the last one of an attempt.
func (p Phase) Over() bool { return p == Completed || p == Stopped || p == Failed }

// CheckpointInfo is a checkpoint that is complete on disk.
type CheckpointInfo struct {
	Path    string
	Step    int64
	Version int64 // policy version of its weights
}

// Sample is one scored completion, for people.
type Sample struct {
	Environment string
	Prompt      string
	Completion  string
	Score       float64
	Version     int64
}

// WeightsInfo is one completed weight update of one inference block.
type WeightsInfo struct {
	Version              int64
	Path, Format         string // where the weights can be loaded from again; empty when they never touched a disk
	Transport            string
	Inference            string // address
	Seconds              float64
	Phases               map[string]float64 // seconds per phase: hold, publish, update, prove, resume
	MaxLogprobDifference float64            // server against trainer on the fixed text
}

// Weights is what a trainer has published for inference to load.
type Weights struct {
	Version   int64  `json:"version"`
	Path      string `json:"path,omitempty"` // a file or folder, complete
	Format    string `json:"format"`         // "tiny", "hf", "lora"
	Transport string `json:"transport"`
	Precision string `json:"precision"` // "float32", "bfloat16", …: what was written, after any rounding
	// Handles say how to reach weights that are in memory instead of files (transports live, ipc and nccl): the text of a
	// JSON object that the trainer's side writes and the inference engine's side reads, with its own form number; nothing
	// in between reads it. It holds no secret, and is invalid once the trainer that wrote it has ended.
	Handles string `json:"handles,omitempty"`
}

// Error is a failure that tells the user what to do. Run may return it wrapped.
type Error struct {
	Summary string // what went wrong, in one line
	Detail  string // what was seen
	Remedy  string // what to do now
	Err     error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Summary + ": " + e.Err.Error()
	}
	return e.Summary
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

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

// Checkpointer is a trainer that can write a checkpoint between two steps, when asked.
type Checkpointer interface {
	SaveCheckpoint(ctx context.Context) (CheckpointInfo, error)
}

// Validator finds mistakes that a schema cannot express. It touches nothing: no file, no network, no process.
type Validator[C any] interface {
	Validate(config C) []spec.Problem
}

// Planner says what a block will need, without touching anything but local files that the config names.
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

// Definition is a plugin, type-erased: what it is called, what its block looks like, and how to make one. The function
// New of the kind's package makes it: inference.New, trainer.New, environment.New, trajectories.New, sync.New.
type Definition struct {
	Kind         kind.Kind
	Name         string
	Version      string
	Summary      string
	Schema       *spec.Schema
	Outputs      *spec.Schema
	Capabilities []string
	Packages     func(gpu bool) Packages // Python packages that the program needs; nil: none
	Environment  []string                // variables of the environment that it reads; see WithEnvironmentVariables
	impl         implementation
}
