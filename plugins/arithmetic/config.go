package arithmetic

import (
	"time"

	"github.com/recipe-rl/recipe/sdk"
	"github.com/recipe-rl/recipe/sdk/spec"
)

// Config is the body of `environment "arithmetic" "name"`.
type Config struct {
	Inference    spec.Ref  `recipe:"inference" reference:"inference" required:"true" doc:"Who answers. Any model that reads plain text will do; tiny was warmed up on this task"`
	Trajectories *spec.Ref `recipe:"trajectories" reference:"trajectories" doc:"Where scored groups go. Default: the recipe's only trajectory API"`

	Name        string  `recipe:"name" doc:"Name under which it registers. Default: the block's name"`
	GroupSize   int64   `recipe:"group_size" default:"16" min:"1" max:"1024" unit:"completions" doc:"Completions per problem"`
	MaxTokens   int64   `recipe:"max_tokens" default:"4" min:"1" unit:"tokens" doc:"Longest completion; the longest answer has two digits and an end mark"`
	Temperature float64 `recipe:"temperature" default:"1" min:"0" doc:"Sampling temperature while training. The log-probabilities that are sent hold for 1"`
	Seed        int64   `recipe:"seed" default:"0" doc:"Order of the problems"`
	Weight      float64 `recipe:"weight" default:"1" min:"0" doc:"Its share of batches beside other environments"`

	Concurrency         int64         `recipe:"concurrency" default:"16" min:"1" unit:"groups" doc:"Groups rolled out at once"`
	MaxBatchesOffpolicy int64         `recipe:"max_batches_offpolicy" default:"1" min:"1" unit:"batches" doc:"How far its queue may run ahead of the trainer"`
	StepsPerEval        int64         `recipe:"steps_per_eval" default:"0" min:"0" unit:"optimizer steps" doc:"How often held-out problems are evaluated while training; 0: never. On demand they always can be"`
	EvaluateBefore      bool          `recipe:"evaluate_before" default:"true" doc:"Evaluate once before the first rollout"`
	EvaluateAfter       bool          `recipe:"evaluate_after" default:"true" doc:"Evaluate once more when training is complete; the time counts against the grace period"`
	Patience            time.Duration `recipe:"patience" default:"5m" min:"1s" doc:"How long inference or the trajectory API may fail without a break before the block fails"`
}

// Definition defines `environment "arithmetic"`.
func Definition() *sdk.Definition {
	return sdk.NewEnvironment("arithmetic", "Additions of two numbers below 50, with a held-out split", func() sdk.Service[Config] { return &environment{} },
		sdk.WithDoc("Each problem is a text such as 07+35= and each answer is right or wrong. A fifth of the problems is kept back for evaluation and never trained on."))
}
