package grpo

import "github.com/recipe-rl/recipe/sdk/kit/worker"

// Config is the body of `trainer "grpo" "name"`. The tag `worker` names the setting of the worker that a field is.
// Default, text, bounds and allowed values of such a field are the worker's own (schema.json); a change of it needs a
// resume, unless the worker takes it live. What is not set here is left to the worker. Blocks are in sections.go, which
// is generated from the worker's settings.
type Config struct {
	worker.Common

	LearningRate    float64  `recipe:"learning_rate" worker:"optimizer.learning_rate"`
	MiniBatchSize   int64    `recipe:"mini_batch_size" worker:"data.mini_batch_size" unit:"completions"`
	Epochs          int64    `recipe:"epochs" worker:"data.epochs"`
	Revision        string   `recipe:"revision" worker:"model.revision"`
	TrustRemoteCode bool     `recipe:"trust_remote_code" worker:"model.trust_remote_code"`
	PeakTflops      *float64 `recipe:"peak_tflops" worker:"peak_tflops"`

	Compute     *Compute     `recipe:"compute,block" doc:"How the model is held and run"`
	Lora        *Lora        `recipe:"lora,block" doc:"Low-rank adapters by peft; without this block all weights are trained"`
	Reference   *Reference   `recipe:"reference,block" doc:"The fixed policy that the KL term compares with"`
	Optimizer   *Optimizer   `recipe:"optimizer,block" doc:"The optimizer and its schedule"`
	Loss        *Loss        `recipe:"loss,block" doc:"The policy loss and how tokens are averaged"`
	KL          *KL          `recipe:"kl,block" doc:"Divergence from the reference"`
	Entropy     *Entropy     `recipe:"entropy,block" doc:"Entropy bonus"`
	Advantages  *Advantages  `recipe:"advantages,block" doc:"Advantages computed from scores, and those that environments send"`
	Correction  *Correction  `recipe:"correction,block" doc:"Off-policy correction: the sampler is never exactly the policy that is trained"`
	Checkpoints *Checkpoints `recipe:"checkpoints,block" doc:"When checkpoints are written and which are kept"`
}

// CheckpointStore implements trainer.Stored.
func (c Config) CheckpointStore() string {
	if c.Checkpoints == nil {
		return ""
	}
	return c.Checkpoints.Store
}

// Checkpoints says when checkpoints are written, which are kept, and what they hold.
type Checkpoints struct {
	worker.Checkpoints
	SaveMerged bool `recipe:"save_merged" worker:"save_merged"`
}
