package atropos

import (
	"time"

	"github.com/recipe-rl/recipe/sdk/spec"
)

// Config is the body of `environment "atropos" "name"`. Everything that has no attribute of its own goes into config
// (what the environment's class declares) or openai (how it calls inference), under atroposlib's own names.
type Config struct {
	Script string `recipe:"script" file:"content" within:"path" doc:"File of the environment, which ends in Class.cli(). Relative to path, else to the recipe"`
	Module string `recipe:"module" doc:"Importable module of the environment, instead of script"`
	Path   string `recipe:"path" doc:"Folder to run in and to import from: a checkout of Atropos (its ATROPOS_PATH), or any other. Default: the recipe's folder"`

	Inference    spec.Ref  `recipe:"inference" reference:"inference" required:"true" doc:"Who samples: address, model, key and tokenizer are injected"`
	Trajectories *spec.Ref `recipe:"trajectories" reference:"trajectories" doc:"Where scored groups go. Default: the recipe's only trajectory API"`

	Name                string  `recipe:"name" doc:"Name under which it registers and appears in metrics. Default: the block's name"`
	GroupSize           int64   `recipe:"group_size" default:"8" min:"1" unit:"completions" doc:"Completions per prompt; at most the trainer's batch_size"`
	MaxTokenLength      int64   `recipe:"max_token_length" min:"1" unit:"tokens" doc:"What the environment's code calls max_token_length: completion only in most environments, prompt and completion in some (reasoning_gym). Default: its own"`
	TotalSteps          int64   `recipe:"total_steps" default:"-1" min:"-1" unit:"optimizer steps" doc:"After how many of the trainer's steps it has done its work; -1: as many as the trainer takes"`
	StepsPerEval        *int64  `recipe:"steps_per_eval" min:"0" unit:"optimizer steps" doc:"How often it evaluates while training; 0: never. Default: its own"`
	EvaluateBefore      bool    `recipe:"evaluate_before" doc:"Evaluate once before the first rollout"`
	EvaluateAfter       bool    `recipe:"evaluate_after" doc:"Evaluate once more when training has ended; the time counts against the grace period"`
	Weight              float64 `recipe:"weight" default:"1" min:"0" doc:"Its share of inference beside other environments (inference_weight)"`
	MinBatchAllocation  float64 `recipe:"min_batch_allocation" min:"0" max:"1" doc:"Smallest share of each batch that comes from it; 0: none is promised"`
	MaxBatchesOffpolicy int64   `recipe:"max_batches_offpolicy" min:"1" unit:"batches" doc:"How far its queue may run ahead. Default: its own, usually 3; lower means fresher data and more waiting"`
	MaxNumWorkers       int64   `recipe:"max_num_workers" min:"1" unit:"groups" doc:"Groups that it rolls out at once. Default: its own"`
	Replicas            int64   `recipe:"replicas" default:"1" min:"1" doc:"Processes of this environment side by side; they share its weight and allocation"`
	KeepSameScores      bool    `recipe:"keep_same_scores" doc:"Send groups whose scores are all equal, too (ensure_scores_are_not_same = false). They teach GRPO nothing but keep the reward curve honest"`
	IncludeMessages     bool    `recipe:"include_messages" doc:"Send the conversation beside the tokens"`
	SaveGroups          bool    `recipe:"save_groups" doc:"Also write every group to groups.jsonl in the block's directory"`
	Wandb               bool    `recipe:"wandb" doc:"Let the environment log to Weights & Biases itself"`

	ServerType           string        `recipe:"server_type" default:"vllm" enum:"vllm,sglang,openai,trl" doc:"How it asks for tokens. vllm and sglang give token ids and log-probabilities, which training needs"`
	RequestTimeout       time.Duration `recipe:"request_timeout" default:"20m" min:"1s" doc:"How long one request to inference may take"`
	NumMaxRequestsAtOnce int64         `recipe:"num_max_requests_at_once" min:"1" doc:"Requests at once. Default: 512"`
	NumRequestsForEval   int64         `recipe:"num_requests_for_eval" min:"1" doc:"Requests at once during an evaluation. Default: 64"`
	Tokenizer            string        `recipe:"tokenizer" doc:"Tokenizer, when it is not that of inference"`

	Config map[string]any `recipe:"config" doc:"Further settings of the environment's class, as an object. One that the class does not declare is an error"`
	OpenAI map[string]any `recipe:"openai" doc:"Further settings of the inference client (APIServerConfig), as an object"`
	Args   []string       `recipe:"args" doc:"Further command-line arguments, as they stand"`

	StartTimeout time.Duration `recipe:"start_timeout" min:"1s" deprecated:"write health { start_timeout = … } instead" doc:"How long its imports and setup (data sets are loaded there) may take"`
	Silence      time.Duration `recipe:"silence" default:"10m" min:"5s" doc:"How long it may poll nothing before it counts as hung"`
}
