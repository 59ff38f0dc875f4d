package engine

import (
	"context"
	"strconv"
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/inference"
	"github.com/recipe-rl/recipe/sdk/kit/chat"
	"github.com/recipe-rl/recipe/sdk/outputs"
	"github.com/recipe-rl/recipe/sdk/transport"
)

// Program is a server program as the kit starts it. A plugin implements it once for each block.
type Program interface {
	// Command is how one server is started. It is pure: the kit also compares commands, to find out whether a server
	// of an earlier attempt runs as this block would start it.
	Command(Launch) (Command, error)
	// Connect makes a client of one server. It does not reach out to it.
	Connect(Address) Client
}

// Spec is what the kit must know about a block beyond its Program.
type Spec struct {
	Title string // name of the engine for people: "vLLM"
	Slug  string // the same in the names of files and processes: "vllm"

	Model     string // what a server starts with: a resolved path, or a name that the program understands
	Tokenizer string // the same for the tokenizer; empty: the model's own
	Served    string // name that clients send as model
	Published string // tokenizer as it is given to clients

	ChatTemplate ChatTemplate
	// ToolCallParser is the block's setting of the parser of tool calls, and ToolParsers the engine's names of them.
	ToolCallParser string
	ToolParsers    map[chat.Format]string

	Replicas    int
	Parallel    Parallel
	PeerDevices []string // further devices that a replica may see without using them

	SleepMode    bool   // the block lets servers sleep
	SleepSetting string // attribute that does; default: enable_sleep_mode
	Lora         bool   // attribute enable_lora
	Quantization string // attribute quantization; empty: none
	// Requantizes reports that a server quantizes the weights that it loads, also while it runs.
	Requantizes bool

	// CacheSalt reports that the engine keeps the prefixes that it has computed apart by the field cache_salt.
	CacheSalt bool
	// CachedPrompt is the length from which prompts are kept in a server's cache, in tokens, 0: none; nil: not known.
	CachedPrompt func(Facts) int

	Limits    Limits
	Log       LogFormat
	Diagnosis Diagnosis
}

// Limits can change while servers run.
type Limits struct {
	Start    time.Duration // from a server's start to its first token; 0: none
	Update   time.Duration // of loading weights
	AtOnce   int64         // sequences that a replica gets at once; 0: as many as its KV cache holds
	Restarts int64         // how often a server that ended is started again before the block fails
}

// LimitSettings are the attributes of an engine's block that set its Limits.
type LimitSettings struct {
	StartTimeout  time.Duration `recipe:"start_timeout" min:"1s" change:"live" deprecated:"write health { start_timeout = … } instead" doc:"Time limit from the start of a server to its first answer, download of the model included"`
	UpdateTimeout time.Duration `recipe:"update_timeout" default:"10m" min:"1s" change:"live" doc:"Time limit of loading new weights"`
	Concurrency   int64         `recipe:"concurrency" default:"0" min:"0" unit:"sequences" change:"live" doc:"Sequences that a replica gets at once; further requests wait in the gateway, in order. 0: as many as its KV cache holds, by what the server reports while it runs (docs/concurrency.md)"`
	MaxRestarts   int64         `recipe:"max_restarts" default:"3" min:"0" change:"live" doc:"Restarts of a failed server before the block fails; the count is reset once a server has answered for ten minutes"`
}

// Limits are the limits that the block sets.
func (s LimitSettings) Limits() Limits {
	return Limits{Start: s.StartTimeout, Update: s.UpdateTimeout, AtOnce: s.Concurrency, Restarts: s.MaxRestarts}
}

// Launch is one start of a server.
type Launch struct {
	Model     string // Spec.Model, or the folder of the current weights where they reach a server only by a restart
	Tokenizer string
	Port      int      // on loopback
	Devices   []string // GPUs that it may see; nil: leave the choice to the program
	Key       string   // that the server is to demand
	Environ   []string // environment to start from
	Temporary string   // folder for its temporary files, removed when it has ended; empty: the machine's
}

// Command is a command line with its whole environment.
type Command struct {
	Argv []string
	Env  []string
}

// Address is where one server listens, with what its client may use.
type Address struct {
	Replica string
	Port    int
	Key     string
	Dir     string               // folder for files of this replica; made when it is first used
	Warn    func(message string) // reports what is unusual but harmless
}

// URL is the root of the server.
func (a Address) URL() string { return "http://127.0.0.1:" + strconv.Itoa(a.Port) }

// Client speaks to one server. A new one is made for each start of a server.
type Client interface {
	// Healthy is a cheap health check of a server that has answered. A *StatusError says that the server itself reports
	// that it is broken; other errors count only when they repeat.
	Healthy(ctx context.Context) error
	// Ready returns nil when the server has produced a token, with any weights. A server that an earlier,
	// dead attempt left paused is resumed.
	Ready(ctx context.Context) error
	// Probe asks a server that is ready what it offers. The client keeps what it needs of the answer.
	Probe(ctx context.Context) (Facts, error)
	// Load loads weights into the server, empties its caches and resumes it. It returns an *sdk.Error before anything was
	// changed; after any other error it is unknown what the server holds. The note is for the log.
	Load(ctx context.Context, l Load) (note string, err error)
	// Answer produces one token as the policy. After Load it shows that the weights do not break the server.
	Answer(ctx context.Context) error
	// Logprobs returns log p(token[i] | token[:i]) for i ≥ 1.
	Logprobs(ctx context.Context, tokens []int) ([]float64, error)
	// Close frees connections.
	Close()
}

// Ways are how a client loads weights, by the form in which they come.
type Ways struct {
	Adapter func(context.Context, Load) error                    // a LoRA adapter
	Copy    func(context.Context, Load) (note string, err error) // out of the trainer's memory, or sent by it
	Folder  func(context.Context, Load) error                    // a checkpoint
	Plain   func(context.Context) error                          // puts back the adapter that changes nothing
}

// Load implements Client's.
func (w Ways) Load(ctx context.Context, l Load) (note string, err error) {
	switch {
	case l.Weights.Format == "lora":
		return "", w.Adapter(ctx, l)
	case l.Weights.Transport.Tensors():
		note, err = w.Copy(ctx, l)
	default:
		err = w.Folder(ctx, l)
	}
	if err != nil {
		return "", err
	}
	return note, w.Plain(ctx)
}

// Load is one load of weights into one server.
type Load struct {
	Weights sdk.Weights
	// Asleep says that the server has back the memory of its weights only. Nothing runs there, so the load must neither
	// pause nor resume.
	Asleep bool
}

// Facts are facts about one server, read from it.
type Facts struct {
	WorkerFacts
	Version     string
	MaxModelLen int64
	Transports  []transport.Name // how weights can reach it
	Sleeps      bool             // releases its GPU's memory when it is asked to
	Salted      []string         // routes beside /v1/completions and /v1/chat/completions that read cache_salt
}

// AnswerReader is a Client that reads answers of its server's model; see inference.AnswerReader.
type AnswerReader interface {
	Read(ctx context.Context, s inference.Sampled) (inference.Said, error)
}

// UsageReporter is a Client that reads what its server reports about its work.
type UsageReporter interface {
	Usage(ctx context.Context) (inference.Usage, error)
}

// Preparer is a Client that must prepare a server that has just come up, before weights are loaded into it.
type Preparer interface {
	Prepare(ctx context.Context) error
}

// Sleeper is a Client of a server that can release its GPU's memory.
type Sleeper interface {
	// Sleep releases the memory. Requests in flight are frozen and continue after Wake.
	Sleep(ctx context.Context, level inference.SleepLevel) error
	// Wake acquires one part of the memory again.
	Wake(ctx context.Context, part Part) error
	// Asleep asks whether the server sleeps or is paused.
	Asleep(ctx context.Context) (bool, error)
}

// Part is a part of a server's memory.
type Part string

// The parts of a server's memory.
const (
	Weights Part = "weights"
	KVCache Part = "kv_cache"
	AllOfIt Part = ""
)

// TokenCounter is a Client that can say how many tokens its server has generated.
type TokenCounter interface {
	GeneratedTokens(ctx context.Context) (float64, error)
}

// Outputs is what a block on this kit gives.
type Outputs struct {
	outputs.Inference
	Transports []string `recipe:"transports" doc:"How new weights can reach it"`
	Reach      []string `recipe:"reach" doc:"Memory that it can copy weights from: gpu:UUID of each GPU that it sees, or host:ID"`
	Machine    string   `recipe:"machine" doc:"The machine that it runs on, until that is booted again: within one weights can be sent (transport nccl)"`
	Arithmetic string   `recipe:"arithmetic" doc:"How exactly it computes: float32, tf32, bfloat16, float16 or float8"`
	Sleeps     bool     `recipe:"sleeps" doc:"Whether it can give its GPU's memory back while a trainer works there"`
	Devices    []string `recipe:"devices" doc:"GPUs that it was placed on; empty: the engine has chosen"`
}
