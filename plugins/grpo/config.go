package grpo

import "github.com/recipe-rl/recipe/sdk/trainer/worker"

// Config is the body of `trainer "grpo" "name"`. The tag `worker` says which setting of the worker a field is; a test
// compares names, defaults and what may change live with the worker's own. What is not set here is left to the worker.
type Config struct {
	worker.Common

	LearningRate    float64  `recipe:"learning_rate" worker:"optimizer.learning_rate" default:"1e-06" min:"0" change:"live" doc:"Peak learning rate"`
	MiniBatchSize   int64    `recipe:"mini_batch_size" worker:"data.mini_batch_size" default:"0" min:"0" unit:"completions" change:"resume" doc:"Sequences of an optimizer step; 0 = the whole batch"`
	Epochs          int64    `recipe:"epochs" worker:"data.epochs" default:"1" min:"1" change:"resume" doc:"Passes over a batch (verl: ppo_epochs)"`
	Revision        string   `recipe:"revision" worker:"model.revision" change:"resume" doc:"Hub revision"`
	TrustRemoteCode bool     `recipe:"trust_remote_code" worker:"model.trust_remote_code" default:"false" change:"resume" doc:"Run code that the model's repository brings"`
	PeakTflops      *float64 `recipe:"peak_tflops" worker:"peak_tflops" change:"resume" doc:"Device's peak for MFU; unset: known devices only"`

	Compute     *Compute     `recipe:"compute,block" doc:"How the model is held and run"`
	Lora        *Lora        `recipe:"lora,block" doc:"Low-rank adapters by peft; without this block all weights are trained"`
	Reference   *Reference   `recipe:"reference,block" doc:"The fixed policy that the KL term compares with"`
	Optimizer   *Optimizer   `recipe:"optimizer,block" doc:"The optimizer and its schedule"`
	Loss        *Loss        `recipe:"loss,block" doc:"The policy loss and how tokens are averaged"`
	KL          *KL          `recipe:"kl,block" doc:"Divergence from the reference"`
	Entropy     *Entropy     `recipe:"entropy,block" doc:"Entropy bonus"`
	Advantages  *Advantages  `recipe:"advantages,block" doc:"Advantages computed from scores, and those that environments send"`
	Correction  *Correction  `recipe:"correction,block" doc:"Sampler and trainer are never quite the same policy; what is done about it"`
	Checkpoints *Checkpoints `recipe:"checkpoints,block" doc:"When checkpoints are written and which are kept"`
}

// Compute is how the model is held and run.
type Compute struct {
	Dtype                 string `recipe:"dtype" worker:"model.dtype" enum:"float32,bfloat16,float16,float64" change:"resume" doc:"Precision of the weights; unset: float32, in which small updates are not rounded away; under adapters that of the arithmetic"`
	ComputeDtype          string `recipe:"compute_dtype" worker:"model.compute_dtype" enum:"float32,bfloat16,float16,float64" change:"resume" doc:"Precision of the arithmetic (autocast); unset: dtype, and without that bfloat16 on a GPU"`
	Device                string `recipe:"device" worker:"model.device" default:"auto" change:"resume" doc:"auto, cpu, cuda or cuda:N"`
	Attention             string `recipe:"attention" worker:"model.attention" default:"auto" enum:"auto,sdpa,eager,varlen,flash_attention_2" change:"resume" doc:"Attention over packed rows"`
	GradientCheckpointing *bool  `recipe:"gradient_checkpointing" worker:"model.gradient_checkpointing" change:"resume" doc:"Recompute activations in the backward pass: less memory, ~25% slower; unset: when memory demands it"`
	RowTokens             *int64 `recipe:"row_tokens" worker:"model.row_tokens" min:"1" unit:"tokens" change:"live" doc:"Most tokens packed into one forward pass; unset: as many as fit into free memory"`
	HeadChunk             *int64 `recipe:"head_chunk" worker:"model.head_chunk" min:"1" unit:"tokens" change:"live" doc:"Tokens whose logits exist at a time; unset: as free memory allows"`
	Compile               *bool  `recipe:"compile" worker:"model.compile" change:"resume" doc:"torch.compile each decoder layer; unset: on a GPU"`
}

// Lora are low-rank adapters by peft; without this block all weights are trained.
type Lora struct {
	Rank           int64    `recipe:"rank" worker:"lora.rank" default:"0" min:"0" change:"resume" doc:"Rank; 0: all weights are trained"`
	Alpha          float64  `recipe:"alpha" worker:"lora.alpha" default:"32" min:"0" change:"resume" doc:"Scale: the update is multiplied by alpha / rank"`
	Dropout        float64  `recipe:"dropout" worker:"lora.dropout" default:"0" min:"0" change:"resume" doc:"Dropout on the adapter's input. Not 0 makes ratios noisy"`
	TargetModules  []string `recipe:"target_modules" worker:"lora.target_modules" default:"[\"all-linear\"]" change:"resume" doc:"Layer names, or all-linear"`
	Layers         []int64  `recipe:"layers" worker:"lora.layers" change:"resume" doc:"Only these decoder layers; unset: all"`
	RankStabilized bool     `recipe:"rank_stabilized" worker:"lora.rank_stabilized" default:"false" change:"resume" doc:"Scale by alpha / sqrt(rank)"`
}

// Reference is the fixed policy that the KL term compares with.
type Reference struct {
	Source  string `recipe:"source" worker:"reference.source" default:"auto" enum:"auto,none,copy,lora_off,data" change:"resume" doc:"auto: none without a KL term, lora_off with adapters, else copy; data: the groups' ref_logprobs"`
	Path    string `recipe:"path" worker:"reference.path" change:"resume" doc:"Another model as reference; unset: the model before training"`
	Offload bool   `recipe:"offload" worker:"reference.offload" default:"false" change:"resume" doc:"Keep the reference on the CPU between its uses"`
}

// Optimizer is the optimizer and its schedule.
type Optimizer struct {
	Name        string  `recipe:"name" worker:"optimizer.name" default:"adamw" enum:"adamw,adamw_8bit,adafactor,sgd" change:"resume" doc:"adamw_8bit needs bitsandbytes"`
	Beta1       float64 `recipe:"beta1" worker:"optimizer.beta1" default:"0.9" min:"0" change:"resume" doc:"Adam's first decay"`
	Beta2       float64 `recipe:"beta2" worker:"optimizer.beta2" default:"0.999" min:"0" change:"resume" doc:"Adam's second decay"`
	Epsilon     float64 `recipe:"epsilon" worker:"optimizer.epsilon" default:"1e-08" min:"0" change:"resume" doc:"Adam's epsilon"`
	WeightDecay float64 `recipe:"weight_decay" worker:"optimizer.weight_decay" default:"0.01" min:"0" change:"live" doc:"Decoupled weight decay"`
	GradClip    float64 `recipe:"grad_clip" worker:"optimizer.grad_clip" default:"1" min:"0" change:"live" doc:"Largest gradient norm; 0 = no clipping"`
	Schedule    string  `recipe:"schedule" worker:"optimizer.schedule" default:"constant" enum:"constant,linear,cosine" change:"live" doc:"After the warm-up"`
	WarmupSteps int64   `recipe:"warmup_steps" worker:"optimizer.warmup_steps" default:"0" min:"0" change:"resume" doc:"Steps of linear warm-up"`
	WarmupRatio float64 `recipe:"warmup_ratio" worker:"optimizer.warmup_ratio" default:"0" min:"0" change:"resume" doc:"Warm-up as a share of all steps, when warmup_steps is 0"`
	Offload     bool    `recipe:"offload" worker:"optimizer.offload" default:"false" change:"resume" doc:"Where inference sleeps while this trainer works (colocated): keep the optimizer's state in the host's memory while inference has the GPU"`
	MinRatio    float64 `recipe:"min_ratio" worker:"optimizer.min_ratio" default:"0" min:"0" change:"resume" doc:"Where linear and cosine end, as a share of the peak"`
}

// Loss is the policy loss and how tokens are averaged.
type Loss struct {
	Name             string    `recipe:"name" worker:"loss.name" default:"ppo" change:"resume" doc:"Policy loss; names of verl, TRL and prime-rl are aliases"`
	Import           string    `recipe:"import" worker:"loss.imported" code:"python" change:"resume" doc:"A loss of your own instead of name: FILE.py:FUNCTION, relative to the recipe (docs/losses.md)"`
	ClipLow          float64   `recipe:"clip_low" worker:"loss.clip_low" default:"0.2" min:"0" change:"live" doc:"Ratio clip below 1 (verl: clip_ratio_low)"`
	ClipHigh         float64   `recipe:"clip_high" worker:"loss.clip_high" default:"0.2" min:"0" change:"live" doc:"Ratio clip above 1 (verl: clip_ratio_high)"`
	DualClip         float64   `recipe:"dual_clip" worker:"loss.dual_clip" default:"3" null:"0" min:"0" change:"live" doc:"Bound for A < 0 (verl: clip_ratio_c); 0 = off"`
	Delta            *float64  `recipe:"delta" worker:"loss.delta" change:"live" doc:"TRL's two-sided clipping: bound of the unclipped ratio"`
	RatioLevel       string    `recipe:"ratio_level" worker:"loss.ratio_level" enum:"token,sequence,sequence_token" change:"resume" doc:"Importance ratio; unset: the loss's own"`
	Aggregation      string    `recipe:"aggregation" worker:"loss.aggregation" enum:"token-mean,seq-mean-token-sum,seq-mean-token-mean,seq-mean-token-sum-norm,batch-mean-token-mean,batch-mean-token-sum,batch-sum-norm,dapo,bnpo,cispo,vespo,grpo,sapo,luspo,dr_grpo" change:"resume" doc:"How tokens are averaged; unset: the loss's own. gspo, sapo, gmpo and weighted_sft fix theirs: another one is refused"`
	LengthNorm       *float64  `recipe:"length_norm" worker:"loss.length_norm" change:"resume" doc:"Constant of the -norm aggregations and of dr_grpo. Unset: the longest response that is allowed: max_response_length, else max_length less max_prompt_length"`
	CispoCap         *float64  `recipe:"cispo_cap" worker:"loss.cispo_cap" change:"resume" doc:"TRL's cispo: absolute cap of the ratio; unset: verl's 1 + clip_high"`
	SapoTauPositive  float64   `recipe:"sapo_tau_positive" worker:"loss.sapo_tau_positive" default:"1" min:"0" change:"resume" doc:"sapo: temperature of the gate for A > 0"`
	SapoTauNegative  float64   `recipe:"sapo_tau_negative" worker:"loss.sapo_tau_negative" default:"1.05" min:"0" change:"resume" doc:"sapo: the same for A <= 0"`
	VespoK           []float64 `recipe:"vespo_k" worker:"loss.vespo_k" default:"[2.0, 3.0]" change:"resume" doc:"vespo: k for A >= 0, A < 0"`
	VespoLambda      []float64 `recipe:"vespo_lambda" worker:"loss.vespo_lambda" default:"[3.0, 2.0]" change:"resume" doc:"vespo: lambda for A >= 0, A < 0"`
	ClipCovRatio     float64   `recipe:"clip_cov_ratio" worker:"loss.clip_cov_ratio" default:"0.0002" min:"0" change:"resume" doc:"clip_cov: share of tokens without gradient"`
	ClipCovBounds    []float64 `recipe:"clip_cov_bounds" worker:"loss.clip_cov_bounds" default:"[1.0, 5.0]" change:"resume" doc:"clip_cov: covariances it picks from"`
	KLCovRatio       float64   `recipe:"kl_cov_ratio" worker:"loss.kl_cov_ratio" default:"0.0002" min:"0" change:"resume" doc:"kl_cov: share of tokens that pay"`
	KLCovCoefficient float64   `recipe:"kl_cov_coefficient" worker:"loss.kl_cov_coefficient" default:"0.1" min:"0" change:"resume" doc:"kl_cov: what they pay (verl: ppo_kl_coef)"`
	ProbabilityGap   *float64  `recipe:"probability_gap" worker:"loss.probability_gap" min:"0" change:"resume" doc:"dppo, ipo, distill: how far a token's probability may move. Unset: 0.15 for dppo (its paper), 0.2 for default (prime-rl), 0.1 for ipo, 0.2 for distill"`
	LogRatioPenalty  float64   `recipe:"log_ratio_penalty" worker:"loss.log_ratio_penalty" default:"0.001" min:"0" change:"resume" doc:"dppo, ipo, distill: coefficient of the squared log ratio"`
	TopEntropy       float64   `recipe:"top_entropy" worker:"loss.top_entropy" default:"1" min:"0" change:"live" doc:"Train only this share of tokens, of the highest entropy (TRL)"`
}

// KL is the divergence from the reference.
type KL struct {
	Coefficient       float64  `recipe:"coefficient" worker:"kl.coefficient" default:"0.001" min:"0" change:"live" doc:"In the loss (verl: kl_loss_coef); 0 = none"`
	Estimator         string   `recipe:"estimator" worker:"kl.estimator" default:"k3" enum:"k1,abs,k2,k3,k1+,abs+,k2+,k3+,kl,mse,low_var_kl,kl+,mse+,low_var_kl+" change:"resume" doc:"Estimator; a trailing + takes k2's gradient"`
	BiasCorrection    bool     `recipe:"bias_correction" worker:"kl.bias_correction" default:"false" change:"resume" doc:"Multiply by the ratio (TRL: use_bias_correction_kl)"`
	RewardCoefficient float64  `recipe:"reward_coefficient" worker:"kl.reward_coefficient" default:"0" min:"0" change:"live" doc:"In the reward instead (verl: use_kl_in_reward)"`
	RewardEstimator   string   `recipe:"reward_estimator" worker:"kl.reward_estimator" default:"k1" enum:"k1,abs,k2,k3,k1+,abs+,k2+,k3+,kl,mse,low_var_kl,kl+,mse+,low_var_kl+" change:"resume" doc:"Estimator in the reward"`
	AdaptiveTarget    *float64 `recipe:"adaptive_target" worker:"kl.adaptive_target" change:"resume" doc:"Adapts reward_coefficient to this KL"`
	AdaptiveHorizon   int64    `recipe:"adaptive_horizon" worker:"kl.adaptive_horizon" default:"10000" min:"1" change:"resume" doc:"Sequences over which it adapts"`
}

// Entropy is the entropy bonus.
type Entropy struct {
	Coefficient float64 `recipe:"coefficient" worker:"entropy.coefficient" default:"0" min:"0" change:"live" doc:"Bonus (verl: entropy_coeff)"`
	Adaptive    bool    `recipe:"adaptive" worker:"entropy.adaptive" default:"false" change:"resume" doc:"Raise or lower the coefficient around target (TRL)"`
	Target      float64 `recipe:"target" worker:"entropy.target" default:"0.2" min:"0" change:"resume" doc:"adaptive: wanted entropy, nats per token"`
	Step        float64 `recipe:"step" worker:"entropy.step" default:"0.005" min:"0" change:"resume" doc:"adaptive: change per optimizer step"`
	Low         float64 `recipe:"low" worker:"entropy.low" default:"0" min:"0" change:"resume" doc:"adaptive: least coefficient"`
	High        float64 `recipe:"high" worker:"entropy.high" default:"1" min:"0" change:"resume" doc:"adaptive: greatest coefficient"`
}

// Advantages are advantages computed from scores, and those that environments send.
type Advantages struct {
	Estimator        string    `recipe:"estimator" worker:"advantages.estimator" default:"grpo" change:"resume" doc:"Estimator; verl's and TRL's names are aliases"`
	Import           string    `recipe:"import" worker:"advantages.imported" code:"python" change:"resume" doc:"An estimator of your own instead of estimator: FILE.py:FUNCTION, relative to the recipe (docs/losses.md)"`
	Std              string    `recipe:"std" worker:"advantages.std" default:"group" enum:"group,batch,none,population" change:"resume" doc:"Scale of grpo and grpo_passk"`
	Epsilon          float64   `recipe:"epsilon" worker:"advantages.epsilon" default:"1e-06" min:"0" change:"resume" doc:"Added to the deviation (TRL: 1e-4)"`
	Single           string    `recipe:"single" worker:"advantages.single" enum:"zero,score" change:"resume" doc:"A group of one: zero, or score (verl). Unset: zero, with estimators that compare within groups; rf++, gae and remax do not"`
	Gamma            float64   `recipe:"gamma" worker:"advantages.gamma" default:"1" min:"0" change:"resume" doc:"Discount of gae and reinforce_plus_plus"`
	Lam              float64   `recipe:"lam" worker:"advantages.lam" default:"1" min:"0" change:"resume" doc:"gae's lambda"`
	ZeroTail         bool      `recipe:"zero_tail" worker:"advantages.zero_tail" default:"false" change:"resume" doc:"optimal_token_baseline: none where one sequence is left"`
	LengthPenalty    bool      `recipe:"length_penalty" worker:"advantages.length_penalty" default:"false" change:"resume" doc:"Favour shorter ones among a group's best (prime-rl)"`
	ObjectiveWeights []float64 `recipe:"objective_weights" worker:"advantages.objective_weights" change:"resume" doc:"gdpo: weights of the objectives in overrides[].rewards"`
	UseAdvantages    bool      `recipe:"use_advantages" worker:"advantages.use_advantages" default:"true" change:"resume" doc:"Use advantages that environments send"`
	FallbackToGrpo   bool      `recipe:"fallback_to_grpo" worker:"advantages.fallback_to_grpo" default:"true" change:"resume" doc:"Sequences without one use the estimator; false = stop"`
	OverrideScope    string    `recipe:"override_scope" worker:"advantages.override_scope" default:"sequence" enum:"sequence,group" change:"resume" doc:"Whole groups or single sequences"`
	Layout           string    `recipe:"layout" worker:"advantages.layout" default:"auto" enum:"auto,response" change:"resume" doc:"response: lists with one entry per trained token"`
	Normalization    string    `recipe:"normalization" worker:"advantages.normalization" default:"none" enum:"none,batch,global" change:"resume" doc:"Of the final advantages"`
	NormalizeScope   string    `recipe:"normalize_scope" worker:"advantages.normalize_scope" default:"override" enum:"override,all" change:"resume" doc:"Which are normalised"`
	Clip             []float64 `recipe:"clip" worker:"advantages.clip" change:"live" doc:"Bounds after normalisation, [low <= 0, high >= 0]"`
	DropEqualScores  bool      `recipe:"drop_equal_scores" worker:"advantages.drop_equal_scores" default:"false" change:"live" doc:"Leave out groups of equal scores that use the estimator"`
}

// Correction says what is done about it: sampler and trainer are never quite the same policy.
type Correction struct {
	OldPolicy            string      `recipe:"old_policy" worker:"correction.old_policy" default:"trainer" enum:"trainer,rollout" change:"resume" doc:"Ratios against the trainer's log-probabilities (decoupled) or the sampler's (bypass)"`
	Recompute            string      `recipe:"recompute" worker:"correction.recompute" default:"auto" enum:"auto,always" change:"resume" doc:"Recompute old log-probabilities: auto = only when more than one step uses them"`
	Importance           string      `recipe:"importance" worker:"correction.importance" default:"auto" enum:"auto,none,token,sequence" change:"resume" doc:"Weights trainer / sampler (verl: rollout_is). auto: of each token, unless the loss's own ratio is against the sampler or it is supervised; a token without the sampler's log-probability has weight 1"`
	ImportanceMode       string      `recipe:"importance_mode" worker:"correction.importance_mode" default:"truncate" enum:"truncate,mask" change:"resume" doc:"Beyond the bounds: clamp, or weight 0"`
	ImportanceHigh       float64     `recipe:"importance_high" worker:"correction.importance_high" default:"2" null:"0" min:"0" change:"live" doc:"Upper bound of the weights (truncated importance sampling); 0 = none"`
	ImportanceLow        *float64    `recipe:"importance_low" worker:"correction.importance_low" change:"live" doc:"Lower bound"`
	ImportanceNormalize  bool        `recipe:"importance_normalize" worker:"correction.importance_normalize" default:"false" change:"resume" doc:"Divide by the batch mean"`
	Rejections           []Rejection `recipe:"rejection,block" worker:"correction.rejections" doc:"Trust-region rules (verl: rollout_rs); a token must pass all of them"`
	RejectionDenominator string      `recipe:"rejection_denominator" worker:"correction.rejection_denominator" default:"kept" enum:"kept,original" change:"resume" doc:"Denominators count kept tokens (verl) or the original ones (AReaL)"`
	OffPolicyThreshold   *float64    `recipe:"off_policy_threshold" worker:"correction.off_policy_threshold" change:"resume" doc:"Drop A < 0 tokens of sequences that drifted by more (TRL, slime)"`
	OffPolicyAgainst     string      `recipe:"off_policy_against" worker:"correction.off_policy_against" default:"rollout" enum:"rollout,trainer" change:"resume" doc:"Drift from the sampler or the old policy"`
	Temperature          float64     `recipe:"temperature" worker:"correction.temperature" default:"1" min:"0" change:"resume" doc:"Sampling temperature when a group does not tell its own"`
	LogprobsMode         string      `recipe:"logprobs_mode" worker:"correction.logprobs_mode" default:"processed" enum:"processed,raw" change:"resume" doc:"What the server sends: processed (logits / temperature; vLLM --logprobs-mode) or raw"`
	MaskTruncated        bool        `recipe:"mask_truncated" worker:"correction.mask_truncated" default:"false" change:"resume" doc:"Completions without an end token train nothing (TRL)"`
	MismatchLimit        float64     `recipe:"mismatch_limit" worker:"correction.mismatch_limit" default:"1" null:"0" min:"0" change:"live" doc:"Mean |log-probability difference| that cannot be right; 0 = none"`
	MismatchAction       string      `recipe:"mismatch_action" worker:"correction.mismatch_action" default:"stop" enum:"stop,skip,warn" change:"live" doc:"Then: stop, skip the batch, or warn"`
}

// Checkpoints says when checkpoints are written, which are kept, and what they hold.
type Checkpoints struct {
	worker.Checkpoints
	SaveMerged bool `recipe:"save_merged" worker:"save_merged" default:"true" change:"resume" doc:"With adapters: write the merged model beside the adapter"`
}

// Rejection is one rule that tokens must pass to be trained on.
type Rejection struct {
	Rule string   `recipe:"rule" required:"true" worker:"rule" enum:"token_k1,token_k2,token_k3,seq_sum_k1,seq_sum_k2,seq_sum_k3,seq_mean_k1,seq_mean_k2,seq_mean_k3,seq_max_k2,seq_max_k3" change:"resume" doc:"Level and estimator, such as seq_mean_k3"`
	High float64  `recipe:"high" required:"true" worker:"high" change:"resume" doc:"Upper bound (k1: of the ratio sampler / trainer)"`
	Low  *float64 `recipe:"low" worker:"low" change:"resume" doc:"k1: lower bound. Unset: 1 / high"`
}
