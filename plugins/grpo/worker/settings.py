"""The sections of the configuration. Defaults are verl's GRPO. Names, defaults, texts and bounds of the block's
attributes come from here: `make generate` writes them to schema.json (python -m worker --schema) and sections.go, from
which the plugin makes its schema. So the texts speak of a recipe: "unset" is null in the worker's own JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from recipe_sdk.fields import option
from recipe_sdk.settings import DataSettings, ModelSettings

from . import advantage, aggregate, correction, loss, registry

_kl = (*aggregate.KL_ESTIMATORS, *aggregate.KL_ALIASES)
_losses = loss.LOSSES.names
_aggregations = (*aggregate.AGGREGATIONS, *aggregate.AGGREGATION_ALIASES)
_estimators = advantage.ESTIMATORS.names
_dtypes = ("float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True)
class Model(ModelSettings):
    """How the model is held and run."""

    revision: str | None = option(None, "Hub revision.")
    dtype: str | None = option(
        None, "Precision of the weights; unset: float32, in which small updates are not rounded away; under adapters "
        "that of the arithmetic.", choices=_dtypes,
    )  # fmt: skip
    compute_dtype: str | None = option(
        None,
        "Precision of the arithmetic (autocast); unset: dtype, and without that bfloat16 on a GPU.",
        choices=_dtypes,
    )
    float8: str | None = option(
        None, "Calculate products of linear layers in float8 (e4m3, a scale for each token and channel), on an H100 or "
        "newer. backward: those that carry gradients through the layers; log-probabilities stay those of bfloat16. "
        "all: those of the forward pass, too, which is faster and moves log-probabilities. unset: none.",
        choices=("backward", "all"),
    )  # fmt: skip
    device: str = option("auto", "auto, cpu, cuda or cuda:N.")
    attention: str = option(
        "auto", "Attention over packed rows.", choices=("auto", "sdpa", "eager", "varlen", "flash_attention_2")
    )
    gradient_checkpointing: bool | None = option(
        None,
        "Recompute activations in the backward pass: less memory, ~25% slower; unset: those of as many layers as "
        "memory demands.",
    )
    row_tokens: int | None = option(
        None, "Most tokens packed into one forward pass; unset: as many as fit into free memory.", live=True, least=1
    )
    head_chunk: int | None = option(
        None, "Tokens whose logits exist at a time; unset: as free memory allows.", live=True, least=1
    )
    compile: bool | None = option(
        None, "torch.compile each decoder layer; unset: on a GPU, unless its layers carry a state (as Mamba's do)."
    )  # fmt: skip
    replicate: bool | None = option(
        None, "On several GPUs each holds the whole model, and gradients are averaged; false: each holds a shard "
        "(FSDP2), gathered layer by layer; unset: whole where memory allows, which is faster.",
    )  # fmt: skip
    trust_remote_code: bool = option(False, "Run code that the model's repository brings.")
    random_init: bool = option(False, "Ignore the weights and start from random ones (tests, benchmarks).")


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters by peft; without this block all weights are trained."""

    rank: int = option(0, "Rank; 0: all weights are trained.", least=0)
    alpha: float = option(32.0, "Scale: the update is multiplied by alpha / rank.", least=0)
    dropout: float = option(0.0, "Dropout on the adapter's input. Not 0 makes ratios noisy.", least=0)
    target_modules: tuple[str, ...] = option(("all-linear",), "Layer names, or all-linear.")
    layers: tuple[int, ...] | None = option(None, "Only these decoder layers; unset: all.")
    rank_stabilized: bool = option(False, "Scale by alpha / sqrt(rank).")
    merged: bool | None = option(
        None, "Calculate with the adapters merged into the weights: faster, and with the very weights that inference "
        "is given; keeps a copy of those before training. false: beside the weights. unset: merged where memory "
        "allows, without dropout, unless inference is given adapters (transport lora).",
    )  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """The fixed policy that the KL term compares with."""

    source: str = option(
        "auto", "auto: none without a KL term, lora_off with adapters, else copy; data: the groups' ref_logprobs.",
        choices=("auto", "none", "copy", "lora_off", "data"),
    )  # fmt: skip
    path: str | None = option(None, "Another model as reference; unset: the model before training.")
    offload: bool = option(False, "Keep the reference on the CPU between its uses.")
    inference: str | None = option(
        None, "An inference block whose model is the reference, or the teacher of loss distill: log-probabilities are "
        "requested from it, and the trainer holds no copy. Its weights must be fixed (docs/distillation.md).",
    )  # fmt: skip
    requests: int = option(32, "Requests at once to the inference block.", live=True, least=1)
    timeout: float = option(
        600.0, "Seconds in which the inference block must answer for a batch; then the trainer fails.", live=True,
        least=0.1,
    )  # fmt: skip
    url: str | None = option(None, "Address of the inference block, ending in /v1.")
    token: str | None = option(None, "Its bearer token.")
    served_model: str = option("", "The name of its model.")


@dataclass(frozen=True)
class Optimizer:
    """The optimizer and its schedule."""

    name: str = option("adamw", "adamw_8bit needs bitsandbytes.", choices=("adamw", "adamw_8bit", "adafactor", "sgd"))
    learning_rate: float = option(1e-6, "Peak learning rate.", live=True, least=0)
    beta1: float = option(0.9, "Adam's first decay.", least=0)
    beta2: float = option(0.999, "Adam's second decay.", least=0)
    epsilon: float = option(1e-8, "Adam's epsilon.", least=0)
    weight_decay: float = option(
        0.01, "Decoupled weight decay, of all weights that are trained: norms, biases and adapters as well.", live=True,
        least=0,
    )  # fmt: skip
    grad_clip: float = option(1.0, "Largest gradient norm; 0 = no clipping.", live=True, least=0)
    schedule: str = option("constant", "After the warm-up.", choices=("constant", "linear", "cosine"), live=True)
    warmup_steps: int = option(0, "Steps of linear warm-up.", least=0)
    warmup_ratio: float = option(0.0, "Warm-up as a share of all steps, when warmup_steps is 0.", least=0)
    min_ratio: float = option(0.0, "Where linear and cosine end, as a share of the peak.", least=0)
    offload: bool = option(
        False, "Keep AdamW's moments in the host's memory; they pass through the GPU in pieces, while it trains where "
        "it has memory for them. For full fine-tuning of models whose state is larger than the GPU.",
    )  # fmt: skip


@dataclass(frozen=True)
class Loss:
    """The policy loss and how tokens are averaged."""

    name: str = option("ppo", "Policy loss; names of verl, TRL and prime-rl are aliases.", choices=_losses)
    imported: str | None = option(
        None, "A loss of your own instead of name: FILE.py:FUNCTION, relative to the recipe (docs/losses.md)."
    )
    clip_low: float = option(0.2, "Ratio clip below 1 (verl: clip_ratio_low).", live=True, least=0)
    clip_high: float = option(0.2, "Ratio clip above 1 (verl: clip_ratio_high).", live=True, least=0)
    dual_clip: float | None = option(3.0, "Bound for A < 0 (verl: clip_ratio_c); 0 = off.", live=True, least=0, off=0)
    delta: float | None = option(None, "TRL's two-sided clipping: bound of the unclipped ratio.", live=True)
    ratio_level: str | None = option(None, "Importance ratio; unset: the loss's own.", choices=registry.RATIO_LEVELS)
    aggregation: str | None = option(
        None, "How tokens are averaged; unset: the loss's own. gspo, sapo, gmpo and weighted_sft fix theirs: another "
        "one is refused.",
        choices=_aggregations,
    )  # fmt: skip
    length_norm: float | None = option(
        None, "Constant of the -norm aggregations and of dr_grpo. Unset: the longest response that is allowed: "
        "max_response_length, else max_length less max_prompt_length.",
    )  # fmt: skip
    cispo_cap: float | None = option(None, "TRL's cispo: absolute cap of the ratio; unset: verl's 1 + clip_high.")
    sapo_tau_positive: float = option(1.0, "sapo: temperature of the gate for A > 0.", least=0)
    sapo_tau_negative: float = option(1.05, "sapo: the same for A <= 0.", least=0)
    vespo_k: tuple[float, float] = option((2.0, 3.0), "vespo: k for A >= 0, A < 0.")
    vespo_lambda: tuple[float, float] = option((3.0, 2.0), "vespo: lambda for A >= 0, A < 0.")
    clip_cov_ratio: float = option(0.0002, "clip_cov: share of tokens without gradient.", least=0)
    clip_cov_bounds: tuple[float, float] = option((1.0, 5.0), "clip_cov: covariances it picks from.")
    kl_cov_ratio: float = option(0.0002, "kl_cov: share of tokens that pay.", least=0)
    kl_cov_coefficient: float = option(0.1, "kl_cov: what they pay (verl: ppo_kl_coef).", least=0)
    probability_gap: float | None = option(
        None, "dppo, ipo, distill: how far a token's probability may move. Unset: 0.15 for dppo (its paper), 0.2 for "
        "default (prime-rl), 0.1 for ipo, 0.2 for distill.", least=0,
    )  # fmt: skip
    log_ratio_penalty: float = option(1e-3, "dppo, ipo, distill: coefficient of the squared log ratio.", least=0)
    top_entropy: float = option(
        1.0, "Train only this share of tokens, of the highest entropy (TRL).", live=True, least=0
    )


@dataclass(frozen=True)
class Kl:
    """Divergence from the reference."""

    coefficient: float = option(0.001, "In the loss (verl: kl_loss_coef); 0 = none.", live=True, least=0)
    estimator: str = option("k3", "Estimator; a trailing + takes k2's gradient.", choices=_kl)
    bias_correction: bool = option(False, "Multiply by the ratio (TRL: use_bias_correction_kl).")
    reward_coefficient: float = option(0.0, "In the reward instead (verl: use_kl_in_reward).", live=True, least=0)
    reward_estimator: str = option("k1", "Estimator in the reward.", choices=_kl)
    adaptive_target: float | None = option(None, "Adapts reward_coefficient to this KL.")
    adaptive_horizon: int = option(10000, "Sequences over which it adapts.", least=1)


@dataclass(frozen=True)
class Entropy:
    """Entropy bonus."""

    coefficient: float = option(0.0, "Bonus (verl: entropy_coeff).", live=True, least=0)
    adaptive: bool = option(False, "Raise or lower the coefficient around target (TRL).")
    target: float = option(0.2, "adaptive: wanted entropy, nats per token.", least=0)
    step: float = option(0.005, "adaptive: change per optimizer step.", least=0)
    low: float = option(0.0, "adaptive: least coefficient.", least=0)
    high: float = option(1.0, "adaptive: greatest coefficient.", least=0)


@dataclass(frozen=True)
class Advantages:
    """Advantages computed from scores, and those that environments send."""

    estimator: str = option("grpo", "Estimator; verl's and TRL's names are aliases.", choices=_estimators)
    imported: str | None = option(
        None,
        "An estimator of your own instead of estimator: FILE.py:FUNCTION, relative to the recipe (docs/losses.md).",
    )
    std: str = option("group", "Scale of grpo and grpo_passk.", choices=advantage.STANDARD_DEVIATIONS)
    epsilon: float = option(1e-6, "Added to the deviation (TRL: 1e-4).", least=0)
    single: str | None = option(
        None, "A group of one: zero, or score (verl). Unset: zero, with estimators that compare within groups; rf++, "
        "gae and remax do not.", choices=("zero", "score"),
    )  # fmt: skip
    gamma: float = option(1.0, "Discount of gae and reinforce_plus_plus.", least=0)
    lam: float = option(1.0, "gae's lambda.", least=0)
    zero_tail: bool = option(False, "optimal_token_baseline: none where one sequence is left.")
    length_penalty: bool = option(False, "Favor shorter ones among a group's best (prime-rl).")
    objective_weights: tuple[float, ...] = option((), "gdpo: weights of the objectives in overrides[].rewards.")
    use_advantages: bool = option(True, "Use advantages that environments send.")
    fallback_to_grpo: bool = option(True, "Sequences without one use the estimator; false = stop.")
    override_scope: str = option("sequence", "Whole groups or single sequences.", choices=("sequence", "group"))
    layout: str = option("auto", "response: lists with one entry per trained token.", choices=("auto", "response"))
    normalization: str = option("none", "Of the final advantages.", choices=("none", "batch", "global"))
    normalize_scope: str = option(
        "override",
        "Which advantages to normalize: only those that an environment gives, or all.",
        choices=("override", "all"),
    )
    clip: tuple[float, float] | None = option(None, "Bounds after normalisation, [low <= 0, high >= 0].", live=True)
    drop_equal_scores: bool = option(False, "Leave out groups of equal scores that use the estimator.", live=True)


@dataclass(frozen=True)
class Rule:
    """A rejection rule."""

    rule: str = option(dataclasses.MISSING, "Level and estimator, such as seq_mean_k3.", choices=correction.REJECTIONS)
    high: float = option(dataclasses.MISSING, "Upper bound (k1: of the ratio sampler / trainer).")
    low: float | None = option(None, "k1: lower bound. Unset: 1 / high.")


@dataclass(frozen=True)
class Correction:
    """Off-policy correction: the sampler is never exactly the policy that is trained."""

    old_policy: str = option(
        "trainer",
        "Ratios against the trainer's log-probabilities (decoupled) or the sampler's (bypass).",
        choices=("trainer", "rollout"),
    )
    recompute: str = option(
        "auto",
        "Recompute old log-probabilities: auto = only when more than one step uses them.",
        choices=("auto", "always"),
    )
    importance: str = option(
        "auto",
        "Weights trainer / sampler (verl: rollout_is). auto: of each token, unless the loss's own ratio is against the "
        "sampler or it is supervised; a token without the sampler's log-probability has weight 1.",
        choices=("auto", "none", "token", "sequence"),
    )
    importance_mode: str = option("truncate", "Beyond the bounds: clamp, or weight 0.", choices=("truncate", "mask"))
    importance_high: float | None = option(
        2.0, "Upper bound of the weights (truncated importance sampling); 0 = none.", live=True, least=0, off=0
    )
    importance_low: float | None = option(None, "Lower bound.", live=True, least=0)
    importance_normalize: bool = option(False, "Divide by the batch mean.")
    rejections: tuple[Rule, ...] = option((), "Trust-region rules (verl: rollout_rs); a token must pass all of them.")
    rejection_denominator: str = option(
        "kept", "Denominators count kept tokens (verl) or the original ones (AReaL).", choices=("kept", "original")
    )
    off_policy_threshold: float | None = option(
        None, "Drop A < 0 tokens of sequences that drifted by more, in nats per token (TRL, slime).", least=0
    )
    off_policy_against: str = option(
        "rollout", "Drift from the sampler or the old policy.", choices=("rollout", "trainer")
    )
    temperature: float = option(1.0, "Sampling temperature if the group does not set one.", least=0.001)
    logprobs_mode: str = option(
        "processed",
        "What the server sends: processed (logits / temperature; vLLM --logprobs-mode) or raw.",
        choices=("processed", "raw"),
    )
    mask_truncated: bool = option(False, "Completions without an end token train nothing (TRL).")
    mismatch_limit: float | None = option(
        1.0, "Mean |log-probability difference| that cannot be right; 0 = none.", live=True, least=0, off=0
    )
    mismatch_action: str = option(
        "stop",
        "What to do when mismatch_limit is exceeded: stop, skip the batch, or warn.",
        choices=("stop", "skip", "warn"),
        live=True,
    )


@dataclass(frozen=True)
class Data(DataSettings):
    """The trajectory API and what a batch is."""

    mini_batch_size: int = option(0, "Sequences of an optimizer step; 0 = the whole batch.", least=0)
    epochs: int = option(1, "Passes over a batch (verl: ppo_epochs).", least=1)
