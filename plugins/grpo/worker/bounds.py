"""Numbers that cannot work, where the least value of a setting (settings.py) cannot say it: bounds that are excluded,
upper ones, and those that depend on another setting. Each would end a run late, or train on NaN, or train nothing."""

from __future__ import annotations

from .rule import Rule


def bound(at: str, comparison: str, right: object, text: str, remedy: str) -> Rule:
    """Refuses the setting where the comparison holds. {at} in the remedy stands for what was given."""
    return Rule(at, ((at, comparison, right),), text, remedy.replace("{at}", "{" + at + "}"))


def positive(at: str, why: str) -> Rule:
    """Refuses 0 and less."""
    return bound(at, "<=", 0, f"{at.rsplit('.')[-1]} must be more than 0", why + " It is {at}.")


def share(at: str, why: str) -> Rule:
    """Refuses more than 1."""
    return bound(at, ">", 1, f"{at.rsplit('.')[-1]} is at most 1", why + " It is {at}.")


def entries(at: str, comparison: str, right: object, text: str, remedy: str) -> tuple[Rule, ...]:
    """Refuses a list of two of which one is so."""
    return tuple(Rule(at, ((f"{at}.{k}", comparison, right),), text, remedy) for k in (0, 1))


K1 = ("token_k1", "seq_sum_k1", "seq_mean_k1")
REJECTIONS = "correction.rejections"
RATIO = "It is compared with the ratio sampler / trainer, which is 1 where the two agree"

BOUNDS = (
    # loss
    positive("loss.length_norm", "Sums of a loss are divided by it; leave it out for the longest response."),
    positive("loss.cispo_cap", "It is the largest importance ratio; 1 is that of a token that has not changed."),
    bound("loss.delta", "<=", 1, "delta must be more than 1",
          "It is the largest importance ratio, and 1 is that of a token that has not changed. It is {at}."),
    positive("loss.sapo_tau_positive", "The gate is divided by it."),
    positive("loss.sapo_tau_negative", "The gate is divided by it."),
    *entries("loss.vespo_k", "<", 0, "vespo_k needs two numbers of at least 0",
             "Below 0 tokens that became unlikely would weigh most. For example vespo_k = [2, 3]."),
    *entries("loss.vespo_lambda", "<", 0, "vespo_lambda needs two numbers of at least 0",
             "Below 0 the weight grows with the exponential of the ratio. For example vespo_lambda = [3, 2]."),
    share("loss.clip_cov_ratio", "It is a share of the tokens."),
    share("loss.kl_cov_ratio", "It is a share of the tokens."),
    Rule("loss.clip_cov_bounds", (("loss.clip_cov_bounds.0", ">=", "@loss.clip_cov_bounds.1"),),
         "clip_cov_bounds needs two numbers, the lower one first", "Between others there is no covariance. For example "
         "clip_cov_bounds = [1, 5]."),
    # advantages
    positive("advantages.epsilon", "In a group of equal scores it is all that a difference of 0 is divided by."),
    share("advantages.gamma", "It is a discount."),
    share("advantages.lam", "It is a discount."),
    Rule("advantages.clip", (("advantages.clip.0", "==", 0), ("advantages.clip.1", "==", 0)),
         "clip = [0, 0] leaves no advantage", "Nothing would be learned. For example clip = [-3, 3]."),
    Rule("advantages.use_advantages",
         (("advantages.use_advantages", "==", False), ("advantages.fallback_to_grpo", "==", False)),
         "no sequence could have an advantage", "use_advantages = false ignores those that environments send, and "
         "fallback_to_grpo = false calculates none. Leave one of them out."),
    Rule("advantages.std",
         (("advantages.estimator", "==", "grpo_passk"), ("advantages.std", "in", ("batch", "population"))),
         "grpo_passk is scaled by its group or not at all", 'Set std = "group" or "none"; it is "{advantages.std}".'),
    # off-policy correction
    Rule("correction.importance_high",
         (("correction.importance_high", "!=", 0), ("correction.importance_high", "<", 1)),
         "importance_high must be at least 1, or 0 for none",
         "1 is the weight of a token that sampler and trainer agree on. It is {correction.importance_high}."),
    bound("correction.importance_low", ">", 1, "importance_low must be at most 1",
          "1 is the weight of a token that sampler and trainer agree on. It is {at}."),
    Rule(REJECTIONS, (("each.high", "<=", 0),), "high must be more than 0", "It is {each.high}.", each=REJECTIONS),
    Rule(REJECTIONS, (("each.rule", "in", K1), ("each.low", "<=", 0)),
         "low must be more than 0", f"{RATIO}. It is {{each.low}}.", each=REJECTIONS),
    Rule(REJECTIONS, (("each.rule", "in", K1), ("each.low", ">=", "@each.high")),
         "low must be less than high", "Between {each.low} and {each.high} there is nothing, so that no token would "
         "be trained.", each=REJECTIONS),
    Rule(REJECTIONS, (("each.rule", "in", K1), ("each.low", "==", None), ("each.high", ">", 0), ("each.high", "<=", 1)),
         "high must be more than 1", f"{RATIO}, and low is 1 / high where it is not set. It is {{each.high}}.",
         each=REJECTIONS),
    # KL, entropy, reference
    Rule("kl.adaptive_horizon", (("kl.adaptive_target", "!=", None), ("kl.adaptive_horizon", "<", "@data.batch_size")),
         "adaptive_horizon is less than batch_size", "The coefficient changes by 0.2 x batch_size / adaptive_horizon a "
         "batch at most, and could turn negative. Set it to some batches' sequences: {data.batch_size} or more."),
    Rule("entropy.low", (("entropy.low", ">", "@entropy.high"),), "low is more than high",
         "The coefficient moves between {entropy.low} and {entropy.high}."),
    Rule("reference.path",
         (("reference.path", "!=", None), ("reference.source", "in", ("none", "lora_off", "data"))),
         "path and source name two references",
         'source = "{reference.source}" does not load a model. Leave path out, or use source = "copy".'),
    # optimizer
    bound("optimizer.beta1", ">=", 1, "beta1 must be less than 1", "It is a decay. It is {at}."),
    bound("optimizer.beta2", ">=", 1, "beta2 must be less than 1", "It is a decay. It is {at}."),
    positive("optimizer.epsilon", "A weight without a gradient would be divided by 0."),
    share("optimizer.warmup_ratio", "It is a share of the steps."),
    share("optimizer.min_ratio", "It is a share of the learning rate."),
    # adapters
    Rule("lora.alpha", (("lora.rank", ">", 0), ("lora.alpha", "<=", 0)), "alpha must be more than 0",
         "What an adapter adds is multiplied by alpha / rank: nothing would be learned."),
    bound("lora.dropout", ">=", 1, "dropout must be less than 1", "It is the share of an input that is left out."),
    Rule("lora.merged", (("lora.merged", "==", True), ("lora.dropout", ">", 0), ("lora.rank", ">", 0)),
         "adapters with dropout cannot be merged", "dropout goes between the input and the adapter. Leave one of "
         "dropout and merged out."),
    Rule("lora.target_modules",
         (("lora.target_modules", "has", "all-linear"), ("lora.target_modules", "!=", ("all-linear",))),
         "all-linear stands for all layers", "Beside names it would be taken for the name of a layer. Leave it or the "
         "names out."),
    positive("peak_tflops", "Leave it out where it is not known."),
)  # fmt: skip
