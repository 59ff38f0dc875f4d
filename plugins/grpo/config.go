package grpo

import "github.com/recipe-rl/recipe/sdk/kit/worker"

// Config is the body of `trainer "grpo" "name"`. The tag `worker` says which setting of the worker a field is. Default,
// text, bounds and allowed values of such a field are the worker's own (schema.json); a change of it needs a resume,
// unless the worker takes it live. What is not set here is left to the worker.
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

// Compute is how the model is held and run.
type Compute struct {
	Dtype                 string `recipe:"dtype" worker:"model.dtype"`
	ComputeDtype          string `recipe:"compute_dtype" worker:"model.compute_dtype"`
	Float8                string `recipe:"float8" worker:"model.float8"`
	Device                string `recipe:"device" worker:"model.device"`
	Attention             string `recipe:"attention" worker:"model.attention"`
	GradientCheckpointing *bool  `recipe:"gradient_checkpointing" worker:"model.gradient_checkpointing"`
	RowTokens             *int64 `recipe:"row_tokens" worker:"model.row_tokens" unit:"tokens"`
	HeadChunk             *int64 `recipe:"head_chunk" worker:"model.head_chunk" unit:"tokens"`
	Compile               *bool  `recipe:"compile" worker:"model.compile"`
	Replicate             *bool  `recipe:"replicate" worker:"model.replicate"`
}

// Lora are low-rank adapters by peft; without this block all weights are trained.
type Lora struct {
	Rank           int64    `recipe:"rank" required:"true" worker:"lora.rank"`
	Alpha          float64  `recipe:"alpha" worker:"lora.alpha"`
	Dropout        float64  `recipe:"dropout" worker:"lora.dropout"`
	TargetModules  []string `recipe:"target_modules" worker:"lora.target_modules"`
	Layers         []int64  `recipe:"layers" worker:"lora.layers"`
	RankStabilized bool     `recipe:"rank_stabilized" worker:"lora.rank_stabilized"`
	Merged         *bool    `recipe:"merged" worker:"lora.merged"`
}

// Reference is the fixed policy that the KL term compares with.
type Reference struct {
	Source  string `recipe:"source" worker:"reference.source"`
	Path    string `recipe:"path" worker:"reference.path"`
	Offload bool   `recipe:"offload" worker:"reference.offload"`
}

// Optimizer is the optimizer and its schedule.
type Optimizer struct {
	Name        string  `recipe:"name" worker:"optimizer.name"`
	Beta1       float64 `recipe:"beta1" worker:"optimizer.beta1"`
	Beta2       float64 `recipe:"beta2" worker:"optimizer.beta2"`
	Epsilon     float64 `recipe:"epsilon" worker:"optimizer.epsilon"`
	WeightDecay float64 `recipe:"weight_decay" worker:"optimizer.weight_decay"`
	GradClip    float64 `recipe:"grad_clip" worker:"optimizer.grad_clip"`
	Schedule    string  `recipe:"schedule" worker:"optimizer.schedule"`
	WarmupSteps int64   `recipe:"warmup_steps" worker:"optimizer.warmup_steps"`
	WarmupRatio float64 `recipe:"warmup_ratio" worker:"optimizer.warmup_ratio"`
	Offload     bool    `recipe:"offload" worker:"optimizer.offload"`
	MinRatio    float64 `recipe:"min_ratio" worker:"optimizer.min_ratio"`
}

// Loss is the policy loss and how tokens are averaged.
type Loss struct {
	Name             string    `recipe:"name" worker:"loss.name"`
	Import           string    `recipe:"import" worker:"loss.imported" code:"python"`
	ClipLow          float64   `recipe:"clip_low" worker:"loss.clip_low"`
	ClipHigh         float64   `recipe:"clip_high" worker:"loss.clip_high"`
	DualClip         float64   `recipe:"dual_clip" worker:"loss.dual_clip"`
	Delta            *float64  `recipe:"delta" worker:"loss.delta"`
	RatioLevel       string    `recipe:"ratio_level" worker:"loss.ratio_level"`
	Aggregation      string    `recipe:"aggregation" worker:"loss.aggregation"`
	LengthNorm       *float64  `recipe:"length_norm" worker:"loss.length_norm"`
	CispoCap         *float64  `recipe:"cispo_cap" worker:"loss.cispo_cap"`
	SapoTauPositive  float64   `recipe:"sapo_tau_positive" worker:"loss.sapo_tau_positive"`
	SapoTauNegative  float64   `recipe:"sapo_tau_negative" worker:"loss.sapo_tau_negative"`
	VespoK           []float64 `recipe:"vespo_k" worker:"loss.vespo_k"`
	VespoLambda      []float64 `recipe:"vespo_lambda" worker:"loss.vespo_lambda"`
	ClipCovRatio     float64   `recipe:"clip_cov_ratio" worker:"loss.clip_cov_ratio"`
	ClipCovBounds    []float64 `recipe:"clip_cov_bounds" worker:"loss.clip_cov_bounds"`
	KLCovRatio       float64   `recipe:"kl_cov_ratio" worker:"loss.kl_cov_ratio"`
	KLCovCoefficient float64   `recipe:"kl_cov_coefficient" worker:"loss.kl_cov_coefficient"`
	ProbabilityGap   *float64  `recipe:"probability_gap" worker:"loss.probability_gap"`
	LogRatioPenalty  float64   `recipe:"log_ratio_penalty" worker:"loss.log_ratio_penalty"`
	TopEntropy       float64   `recipe:"top_entropy" worker:"loss.top_entropy"`
}

// KL is the divergence from the reference.
type KL struct {
	Coefficient       float64  `recipe:"coefficient" worker:"kl.coefficient"`
	Estimator         string   `recipe:"estimator" worker:"kl.estimator"`
	BiasCorrection    bool     `recipe:"bias_correction" worker:"kl.bias_correction"`
	RewardCoefficient float64  `recipe:"reward_coefficient" worker:"kl.reward_coefficient"`
	RewardEstimator   string   `recipe:"reward_estimator" worker:"kl.reward_estimator"`
	AdaptiveTarget    *float64 `recipe:"adaptive_target" worker:"kl.adaptive_target"`
	AdaptiveHorizon   int64    `recipe:"adaptive_horizon" worker:"kl.adaptive_horizon"`
}

// Entropy is the entropy bonus.
type Entropy struct {
	Coefficient float64 `recipe:"coefficient" worker:"entropy.coefficient"`
	Adaptive    bool    `recipe:"adaptive" worker:"entropy.adaptive"`
	Target      float64 `recipe:"target" worker:"entropy.target"`
	Step        float64 `recipe:"step" worker:"entropy.step"`
	Low         float64 `recipe:"low" worker:"entropy.low"`
	High        float64 `recipe:"high" worker:"entropy.high"`
}

// Advantages are advantages computed from scores, and those that environments send.
type Advantages struct {
	Estimator        string    `recipe:"estimator" worker:"advantages.estimator"`
	Import           string    `recipe:"import" worker:"advantages.imported" code:"python"`
	Std              string    `recipe:"std" worker:"advantages.std"`
	Epsilon          float64   `recipe:"epsilon" worker:"advantages.epsilon"`
	Single           string    `recipe:"single" worker:"advantages.single"`
	Gamma            float64   `recipe:"gamma" worker:"advantages.gamma"`
	Lam              float64   `recipe:"lam" worker:"advantages.lam"`
	ZeroTail         bool      `recipe:"zero_tail" worker:"advantages.zero_tail"`
	LengthPenalty    bool      `recipe:"length_penalty" worker:"advantages.length_penalty"`
	ObjectiveWeights []float64 `recipe:"objective_weights" worker:"advantages.objective_weights"`
	UseAdvantages    bool      `recipe:"use_advantages" worker:"advantages.use_advantages"`
	FallbackToGrpo   bool      `recipe:"fallback_to_grpo" worker:"advantages.fallback_to_grpo"`
	OverrideScope    string    `recipe:"override_scope" worker:"advantages.override_scope"`
	Layout           string    `recipe:"layout" worker:"advantages.layout"`
	Normalization    string    `recipe:"normalization" worker:"advantages.normalization"`
	NormalizeScope   string    `recipe:"normalize_scope" worker:"advantages.normalize_scope"`
	Clip             []float64 `recipe:"clip" worker:"advantages.clip"`
	DropEqualScores  bool      `recipe:"drop_equal_scores" worker:"advantages.drop_equal_scores"`
}

// Correction is the off-policy correction: the sampler is never exactly the policy that is trained.
type Correction struct {
	OldPolicy            string      `recipe:"old_policy" worker:"correction.old_policy"`
	Recompute            string      `recipe:"recompute" worker:"correction.recompute"`
	Importance           string      `recipe:"importance" worker:"correction.importance"`
	ImportanceMode       string      `recipe:"importance_mode" worker:"correction.importance_mode"`
	ImportanceHigh       float64     `recipe:"importance_high" worker:"correction.importance_high"`
	ImportanceLow        *float64    `recipe:"importance_low" worker:"correction.importance_low"`
	ImportanceNormalize  bool        `recipe:"importance_normalize" worker:"correction.importance_normalize"`
	Rejections           []Rejection `recipe:"rejection,block" worker:"correction.rejections"`
	RejectionDenominator string      `recipe:"rejection_denominator" worker:"correction.rejection_denominator"`
	OffPolicyThreshold   *float64    `recipe:"off_policy_threshold" worker:"correction.off_policy_threshold"`
	OffPolicyAgainst     string      `recipe:"off_policy_against" worker:"correction.off_policy_against"`
	Temperature          float64     `recipe:"temperature" worker:"correction.temperature"`
	LogprobsMode         string      `recipe:"logprobs_mode" worker:"correction.logprobs_mode"`
	MaskTruncated        bool        `recipe:"mask_truncated" worker:"correction.mask_truncated"`
	MismatchLimit        float64     `recipe:"mismatch_limit" worker:"correction.mismatch_limit"`
	MismatchAction       string      `recipe:"mismatch_action" worker:"correction.mismatch_action"`
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

// Rejection is one rule that tokens must pass to be trained on.
type Rejection struct {
	Rule string   `recipe:"rule" required:"true" worker:"rule"`
	High float64  `recipe:"high" required:"true" worker:"high"`
	Low  *float64 `recipe:"low" worker:"low"`
}
