// Package sdk is what the author of a plugin imports.
//
// A plugin implements the small interface of its kind. All of them share Run: it is called once, it does the block's
// whole life, it calls Host.Ready when dependents may start, and it returns when the job is done or when its context
// ends. Abilities that not every plugin has (Updater, Evaluator, Checkpointer, Planner, Validator) are optional
// interfaces, found by assertion. Everything else comes with the SDK: the process, TLS, leases and events; for inference
// the gateway; for trainers the control endpoint from which a sync block takes weights.
package sdk

import (
	"context"
	"time"

	"github.com/recipe-rl/recipe/sdk/kind"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Request is everything that a block is started with. C is the plugin's configuration struct.
type Request[C any] struct {
	Address       string // inference.vllm.policy
	RunID         string
	Recipe        string
	Config        C
	Dir           string // the block's own directory, inside the run directory; exists, mode 0700
	RunDir        string
	RecipeDir     string // relative paths in a recipe are relative to this
	CheckpointDir string // of this block; exists
	Environment   map[string]string
	Placement     Placement
	Runtime       Runtime
	Token         string // bearer token that the block's data endpoint demands
	ControlToken  string // bearer token that its control endpoint demands
	Listen        string // host:port of an earlier life; serve there again if it can be had, so that dependents need not be told
	Policy        Policy // what this run has reached; Version 0: nothing yet
	SyncedBy      []string
	Handle        []byte // what Host.SetHandle recorded in an earlier life; nil: none
	Resume        bool   // continue from the newest checkpoint in CheckpointDir
}

// Placement is where the block runs.
type Placement struct {
	GPUs     int
	Devices  []string
	Executor string
	Host     string
}

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

// Host is the block's view of the engine. Every method is safe for concurrent use and never blocks on the engine, except Sync.
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
	// Listening records the host:port where the block serves: it becomes Request.Listen of its next life.
	Listening(address string)
	// Weights reports one completed weight update. Sync blocks call it.
	Weights(WeightsInfo)
	// Begin says what the block waits for or works on from now on, until End is called on what it returns. It is for what may
	// last: a run that stands still is explained by it. Nothing is written down, so it costs next to nothing.
	Begin(Activity) *Ongoing
	// Activities is Begin for a block that has the answer at hand: the function is called whenever somebody asks, at the same
	// time as everything else, and must return at once.
	Activities(func() []Activity)
	// Grace is how long the block may take once Run's context has ended.
	Grace() time.Duration
}

// TrainerHost is the Host of a trainer.
type TrainerHost interface {
	Host
	// Sync is called after each optimizer step, with the trainer's weights at rest. When a sync block wants this step's
	// weights it publishes them through Trainer.Publish, proves them through Trainer.Logprobs, waits until inference
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

// Phase is where a block stands in its life.
type Phase string

// The phases of a block.
const (
	Pending   Phase = "pending"
	Starting  Phase = "starting"
	Loading   Phase = "loading"
	Ready     Phase = "ready"
	Degraded  Phase = "degraded"
	Draining  Phase = "draining"
	Completed Phase = "completed" // a job that has done its work
	Stopped   Phase = "stopped"
	Failed    Phase = "failed"
)

// Over says that nothing will come after this phase in this life of the block.
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
	// JSON object that the trainer's side writes and the inference engine's side reads, with its own form number; nobody in
	// between looks into it. It holds no secret, and means nothing once the trainer that wrote it has ended.
	Handles string `json:"handles,omitempty"`
}

// PublishRequest asks a trainer to write its current weights.
type PublishRequest struct {
	Version   int64  `json:"version"`
	Transport string `json:"transport"` // live, ipc, nccl, lora, reload or restart
	Dir       string `json:"dir"`       // where to put them; exists
	// Keep asks that weights in memory keep these values until the next publication, although training goes on: there will be
	// steps without one, and an inference block that is restarted meanwhile must still find this version.
	Keep bool `json:"keep,omitempty"`
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

// Service is a plugin of a kind that needs nothing beyond Run: environment and trajectories.
type Service[C any] interface {
	Run(ctx context.Context, req Request[C], host Host) error
}

// Inference is what an inference plugin implements. The SDK serves the gateway in front of it: Run starts the engine,
// tells host the replicas' addresses and calls Ready with an InferenceOutputs of which only Model, Tokenizer and
// MaxModelLen need be set.
type Inference[C any] interface {
	Run(ctx context.Context, req Request[C], host InferenceHost) error
	// UpdateWeights loads published weights into every replica and resets their caches. The gateway holds requests meanwhile.
	UpdateWeights(ctx context.Context, w Weights) error
	// Logprobs returns log p(token[i] | token[:i]) for i ≥ 1 under the weights that are served now (len(tokens)-1 values).
	Logprobs(ctx context.Context, tokens []int) ([]float64, error)
}

// InferenceHost is the Host of an inference plugin.
type InferenceHost interface {
	Host
	// Serve tells the gateway where the engine's replicas listen. Called again when they move or are lost.
	Serve(replicas ...Replica)
	// Loaded says which policy version the engine has just been started with (Request.Policy.Version when it loaded those weights).
	Loaded(version int64)
}

// Replica is one inference server behind the gateway.
type Replica struct {
	ID     string
	URL    string // http://127.0.0.1:port, without /v1
	APIKey string
}

// Trainer is what a trainer implements.
type Trainer[C any] interface {
	Run(ctx context.Context, req Request[C], host TrainerHost) error
	// Publish writes the current weights so that inference can load them. It is called only while Run waits in TrainerHost.Sync.
	Publish(ctx context.Context, req PublishRequest) (Weights, error)
	// Logprobs is Inference.Logprobs under the trainer's weights; called only while Run waits in TrainerHost.Sync.
	Logprobs(ctx context.Context, tokens []int) ([]float64, error)
}

// Tokenizing is a trainer that can split a text into the model's tokens. A sync block proves the weights with a text that the
// model finds likely; without this it must make do with arbitrary token ids, on which server and trainer agree less exactly.
type Tokenizing interface {
	// Tokenize returns the ids of a text without special tokens; called only while Run waits in TrainerHost.Sync.
	Tokenize(ctx context.Context, text string) ([]int, error)
}

// Loop is what a sync plugin implements: it runs beside the blocks that it joins.
type Loop[C any] interface {
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
	Facts   map[string]string // compared between blocks that refer to each other: "tokenizer", "max_model_len", "group_size", …
}

// Amount is one need.
type Amount struct {
	Resource string  // gpu_memory, host_memory, disk (bytes) or port (number)
	Part     string  // weights, gradients, optimizer, activations, kv_cache, …
	Value    float64 // bytes, or the port
	How      string  // the sum in words: "1.54 B parameters × 2 bytes"
}

// InferenceOutputs is what every inference block gives.
type InferenceOutputs struct {
	BaseURL      string `recipe:"base_url" doc:"OpenAI-compatible address, ending in /v1"`
	GenerateURL  string `recipe:"generate_url" doc:"token-in, token-out address"`
	Model        string `recipe:"model" doc:"name to send as model"`
	APIKey       string `recipe:"api_key" sensitive:"true" doc:"bearer token of base_url and generate_url"`
	Tokenizer    string `recipe:"tokenizer" doc:"name or path of the tokenizer"`
	MaxModelLen  int64  `recipe:"max_model_len" unit:"tokens" doc:"prompt and completion together"`
	ControlURL   string `recipe:"control_url" doc:"where a sync block holds, updates and resumes this server"`
	ControlToken string `recipe:"control_token" sensitive:"true" doc:"bearer token of control_url"`
}

// TrajectoriesOutputs is what every trajectories block gives.
type TrajectoriesOutputs struct {
	URL   string `recipe:"url" doc:"address of the Atropos-compatible API, without a trailing slash"`
	Token string `recipe:"token" sensitive:"true" doc:"bearer token of url"`
}

// EnvironmentOutputs is what every environment block gives.
type EnvironmentOutputs struct {
	Name      string `recipe:"name" doc:"name under which it registers with the trajectory API"`
	GroupSize int64  `recipe:"group_size" unit:"completions" doc:"completions per prompt"`
}

// TrainerOutputs is what every trainer block gives.
type TrainerOutputs struct {
	Model        string `recipe:"model" doc:"what it trains"`
	Checkpoint   string `recipe:"checkpoint" doc:"newest complete checkpoint; empty before the first"`
	Step         int64  `recipe:"step" unit:"optimizer steps" doc:"steps done"`
	ControlURL   string `recipe:"control_url" doc:"where a sync block takes weights"`
	ControlToken string `recipe:"control_token" sensitive:"true" doc:"bearer token of control_url"`
}

// SyncOutputs is what every sync block gives.
type SyncOutputs struct {
	Version   int64  `recipe:"version" doc:"policy version that inference serves"`
	Transport string `recipe:"transport" doc:"how weights move, and what was chosen for auto"`
}

// Definition is a plugin, type-erased: what it is called, what its block looks like, and how to make one.
// NewInference, NewTrainer, NewEnvironment, NewTrajectories and NewSync make definitions.
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
