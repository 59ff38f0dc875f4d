"""Settings that do nothing beside others, of which a plan warns where they are not at their default. What a loss or an
estimator reads, its decorator says (registry: uses)."""

from __future__ import annotations

from .bounds import K1, REJECTIONS
from .rule import Condition, Rule


def idle(settings: tuple[str, ...], when: tuple[Condition, ...], why: str, remedy: str = "") -> tuple[Rule, ...]:
    """A warning for each of the settings where the conditions hold. {name} in the texts stands for the setting's."""
    return tuple(
        Rule(
            at, ((at, "set", True), *when), f"{_name(at)} has no effect",
            f"{why} {remedy or f'Leave {_name(at)} out.'}".replace("{name}", _name(at)), warning=True,
        )
        for at in settings
    )  # fmt: skip


def _name(at: str) -> str:
    return at.rsplit(".", 1)[-1]


def unread(section: str, fact: str, chosen: str, names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Constants that the chosen function does not read."""
    rules = (idle((f"{section}.{n}",), ((fact, "lacks", n),), f"{chosen} does not use it.") for n in names)
    return tuple(rule for one in rules for rule in one)


LOSS = (
    "clip_low", "clip_high", "dual_clip", "delta", "cispo_cap", "sapo_tau_positive", "sapo_tau_negative", "vespo_k",
    "vespo_lambda", "clip_cov_ratio", "clip_cov_bounds", "kl_cov_ratio", "kl_cov_coefficient", "probability_gap",
    "log_ratio_penalty",
)  # fmt: skip
ESTIMATOR = ("std", "epsilon", "gamma", "lam", "zero_tail")
NO_KL: tuple[Condition, ...] = (("kl.coefficient", "==", 0), ("kl.reward_coefficient", "==", 0))
NO_REFERENCE: tuple[Condition, ...] = (*NO_KL, ("loss:needs", "lacks", "reference"))
AWAY_FROM_1 = ("clip_low", "clip_high", "dual_clip", "delta", "sapo_tau_positive", "sapo_tau_negative")
ONE_STEP: tuple[Condition, ...] = (
    ("data.epochs", "==", 1), ("correction.old_policy", "==", "trainer"), ("loss:against", "==", "old"),
    ("loss:ratio", "!=", None),
)  # fmt: skip
ONLY_ONE = (
    "A batch is one optimizer step, so that the ratio to the policy before it is 1. What is stale is corrected by "
    "correction.importance."
)
SEVERAL = "Set mini_batch_size below batch_size, or epochs above 1, or leave {name} out."


def in_one_step(name: str) -> tuple[Rule, ...]:
    """Warnings of what bounds the ratio, where it is 1 at all times."""
    read = (*ONE_STEP, ("loss:uses", "has", name))
    whole = ((("data.mini_batch_size", "==", right),) for right in (0, "@data.batch_size"))
    return tuple(rule for one in whole for rule in idle((f"loss.{name}",), (*read, *one), ONLY_ONE, SEVERAL))


IDLE = (
    # loss
    *unread("loss", "loss:uses", "{loss.name}", LOSS),
    *idle(("loss.ratio_level",), (("loss:uses", "lacks", "ratio_level"), ("kl.bias_correction", "==", False)),
          "{loss.name} has its own ratio."),
    *(rule for name in AWAY_FROM_1 for rule in in_one_step(name)),
    *idle(("loss.dual_clip",), (("loss:uses", "has", "dual_clip"), ("loss:level", "!=", "token")),
          "It bounds the ratios of tokens, and these are of sequences."),
    *idle(("loss.clip_low", "loss.clip_high"), (("loss.cispo_cap", "!=", None), ("loss.name", "==", "cispo")),
          "cispo_cap stands in the place of both clips."),
    *idle(("loss.length_norm",), (("loss:normed", "==", False),),
          "{loss.name} averages tokens by {loss:aggregation}, which divides by no constant.",
          'Leave it out, or use aggregation = "seq-mean-token-sum-norm" or "batch-sum-norm".'),
    # KL and reference
    *idle(("kl.estimator", "kl.bias_correction"), (("kl.coefficient", "==", 0),), "kl.coefficient is 0."),
    *idle(("kl.reward_estimator",), (("kl.reward_coefficient", "==", 0),), "kl.reward_coefficient is 0."),
    *idle(("kl.adaptive_horizon",), (("kl.adaptive_target", "==", None),), "Nothing adapts without adaptive_target."),
    *idle(("reference.source",), (*NO_REFERENCE, ("reference.source", "!=", "none")),
          "No KL term and no loss asks for a reference.",
          'Set kl { coefficient = … }, or leave {name} out. With source = "copy" a model is loaded all the same, and a '
          "KL term can be turned on while the run goes on."),
    *idle(("reference.path", "reference.offload"), (*NO_REFERENCE, ("reference.source", "!=", "copy")),
          "No KL term and no loss asks for a reference."),
    *idle(("reference.offload",), (("reference.source", "in", ("lora_off", "data")),),
          'source = "{reference.source}" loads no model.'),
    *idle(("reference.offload",), (("reference.source", "==", "auto"), ("reference.path", "==", None),
                                   ("reference.inference", "==", None), ("lora.rank", ">", 0)),
          "The reference is the model without its adapters: no other is loaded."),
    *idle(("reference.inference",), NO_REFERENCE, "No KL term and no loss asks for a reference.",
          'Set kl { coefficient = … } or loss { name = "distill" }, or leave {name} out.'),
    *idle(("reference.offload",), (("reference.inference", "!=", None),), "The reference is served."),
    *idle(("reference.requests", "reference.timeout"), (("reference.inference", "==", None),),
          "No inference block is asked."),
    Rule("reference.path", (("loss:needs", "has", "reference"), ("reference.path", "==", None),
                            ("reference.inference", "==", None), ("reference.source", "in", ("auto", "copy"))),
         "the teacher of {loss.name} is the model itself before training", "Nothing is learned from it at first. Write "
         "reference { path = … } or reference { inference = … }, the teacher.", warning=True),
    # entropy
    *idle(("entropy.target", "entropy.step", "entropy.low", "entropy.high"), (("entropy.adaptive", "==", False),),
          "The coefficient is constant.", "Set adaptive = true, or leave {name} out."),
    # advantages
    *unread("advantages", "estimator:uses", "{advantages.estimator}", ESTIMATOR),
    *idle(("advantages.std",), (("advantages.estimator", "==", "dr_grpo"),), "dr_grpo divides by no deviation.",
          'Leave it out, or use estimator = "grpo".'),
    *idle(("advantages.epsilon",), (("advantages.estimator", "==", "dr_grpo"),), "dr_grpo divides by no deviation."),
    *idle(("advantages.epsilon",), (("estimator:uses", "has", "std"), ("advantages.std", "in", ("none", "population"))),
          'std = "{advantages.std}" does not use it.'),
    *idle(("advantages.objective_weights",), (("estimator:needs", "lacks", "objectives"),),
          "{advantages.estimator} looks at scores, not at objectives.", 'Leave it out, or use estimator = "gdpo".'),
    *idle(("advantages.normalize_scope",), (("advantages.normalization", "==", "none"),), "Nothing is normalized."),
    *idle(("advantages.normalization",),
          (("advantages.use_advantages", "==", False), ("advantages.normalize_scope", "==", "override")),
          'normalize_scope = "override" normalizes advantages that environments send, and use_advantages = false '
          "ignores these.", 'Set normalize_scope = "all", or leave it out.'),
    *idle(("advantages.override_scope",), (("advantages.use_advantages", "==", False),),
          "use_advantages = false ignores what environments send."),
    # off-policy correction
    *idle(("correction.importance_mode", "correction.importance_high", "correction.importance_low",
           "correction.importance_normalize"), (("loss:importance", "==", "none"),),
          "No importance weight corrects this loss, or its ratio is the correction."),
    *idle(("correction.importance_mode",), (("correction.importance_high", "==", 0),
                                            ("correction.importance_low", "==", None)),
          "The weights have no bounds."),
    *idle(("correction.recompute",), (("correction.old_policy", "==", "rollout"),),
          'old_policy = "rollout" takes the ratio against the sampler\'s log-probabilities.'),
    *idle(("correction.rejection_denominator",), ((REJECTIONS, "==", ()),), "Nothing is rejected without a rejection."),
    *idle(("correction.off_policy_against",), (("correction.off_policy_threshold", "==", None),),
          "Nothing is dropped without off_policy_threshold."),
    *idle(("correction.mismatch_action",), (("correction.mismatch_limit", "==", 0),), "mismatch_limit is 0: none."),
    Rule(REJECTIONS, (("each.rule", "not in", K1), ("each.low", "!=", None)), "low has no effect",
         "Only rules with k1 have a lower bound.", True, REJECTIONS),
    # optimizer
    *idle(("optimizer.beta1", "optimizer.beta2", "optimizer.epsilon"),
          (("optimizer.name", "in", ("adafactor", "sgd")),), "{optimizer.name} does not use it."),
    *idle(("optimizer.warmup_ratio",), (("optimizer.warmup_steps", ">", 0),), "warmup_steps goes first.",
          "Leave one of them out."),
    *idle(("optimizer.min_ratio",), (("optimizer.schedule", "==", "constant"),), "The rate stays constant.",
          'Set schedule = "linear" or "cosine", or leave it out.'),
    *idle(("optimizer.schedule",), (("optimizer.warmup_steps", ">", 0), ("optimizer.warmup_steps", ">=", "@steps")),
          "The warm-up lasts as long as the run."),
    Rule("optimizer.warmup_steps", (("optimizer.warmup_steps", ">", "@steps"), ("steps", ">", 0)),
         "the learning rate never reaches its peak",
         "warmup_steps is {optimizer.warmup_steps}, and the run has {steps} steps.", warning=True),
    Rule("optimizer.learning_rate", (("optimizer.learning_rate", "==", 0),), "nothing is learned at a rate of 0",
         "Steps are calculated, and no weight changes. Set learning_rate.", warning=True),
    # adapters
    *idle(("save_merged",), (("lora.rank", "==", 0),), "Without adapters there is only the model to save."),
)  # fmt: skip
