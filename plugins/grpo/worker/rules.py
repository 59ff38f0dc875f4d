"""Settings that contradict each other, as data: the worker refuses them here, and a plan refuses them before anything
runs, from the same rules in schema.json (make generate). What a type, a bound or a list of choices can say is not here.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from .bounds import BOUNDS
from .idle import IDLE
from .rule import Condition, Rule

EXPLICIT = ("token", "sequence")
NOT_BF16 = ("float32", "float16", "float64")


RULES = (
    Rule(
        "data.mini_batch_size",
        (("data.mini_batch_size", ">", "@data.batch_size"),),
        "mini_batch_size is larger than batch_size",
        "A batch of {data.batch_size} is split into optimizer steps of mini_batch_size; lower it.",
    ),
    Rule(
        "advantages.clip",
        (("advantages.clip.0", ">", 0),),
        "clip needs two numbers, low <= 0 <= high",
        "For example clip = [-3, 3].",
    ),
    Rule(
        "advantages.clip",
        (("advantages.clip.1", "<", 0),),
        "clip needs two numbers, low <= 0 <= high",
        "For example clip = [-3, 3].",
    ),
    Rule(
        "loss.dual_clip",
        (("loss.dual_clip", "<=", 1), ("loss.dual_clip", "!=", 0)),
        "dual_clip must be above 1, or 0 for none",
        "It bounds the ratio of completions that were worse than the group.",
    ),
    Rule(
        "loss.top_entropy",
        (("loss.top_entropy", "<=", 0),),
        "top_entropy is a share of the tokens",
        "Expected more than 0 and at most 1, got {loss.top_entropy}. 1 trains all tokens.",
    ),
    Rule(
        "loss.top_entropy",
        (("loss.top_entropy", ">", 1),),
        "top_entropy is a share of the tokens",
        "Expected more than 0 and at most 1, got {loss.top_entropy}. 1 trains all tokens.",
    ),
    Rule(
        "reference.source",
        (("reference.source", "==", "lora_off"), ("lora.rank", "==", 0)),
        "lora_off needs adapters",
        'Add lora { rank = … }, or use source = "copy".',
    ),
    Rule(
        "reference.source",
        (("reference.source", "==", "none"), ("kl.coefficient", ">", 0)),
        "a KL term needs a reference",
        'Set kl { coefficient = 0 }, or reference { source = "auto" }.',
    ),
    Rule(
        "reference.source",
        (("reference.source", "==", "none"), ("kl.reward_coefficient", ">", 0)),
        "a KL term needs a reference",
        'Set kl { reward_coefficient = 0 }, or reference { source = "auto" }.',
    ),
    Rule(
        "reference.source",
        (("reference.source", "in", ("none", "lora_off")), ("loss:needs", "has", "reference")),
        "{loss.name} needs a teacher",
        'Write reference { inference = … } for a teacher that is served, source = "copy"  path = … for one that the '
        'trainer loads, or source = "data" when the groups carry the teacher\'s log-probabilities.',
    ),
    Rule(
        "reference.inference",
        (("reference.inference", "!=", None), ("reference.path", "!=", None)),
        "there are two references",
        "path names a model that the trainer loads, inference one that is served. Leave one of them out.",
    ),
    Rule(
        "reference.inference",
        (("reference.inference", "!=", None), ("reference.source", "!=", "auto")),
        "source and inference say different things",
        'source is "{reference.source}", and {reference.inference} is a reference that is served. Leave source out.',
    ),
    Rule(
        "advantages.drop_equal_scores",
        (("advantages.drop_equal_scores", "==", True), ("loss.name", "in", ("distill", "ref_kl"))),
        "{loss.name} learns from groups of equal scores",
        "It compares with a teacher and reads no score. Leave drop_equal_scores out.",
    ),
    Rule(
        "model.float8",
        (("model.float8", "!=", None), ("model.compute_dtype", "in", NOT_BF16)),
        "float8 goes with arithmetic in bfloat16",
        'compute_dtype is "{model.compute_dtype}". Leave it out, or leave float8 out.',
    ),
    Rule(
        "model.float8",
        (("model.float8", "!=", None), ("model.compute_dtype", "==", None), ("model.dtype", "in", NOT_BF16)),
        "float8 goes with arithmetic in bfloat16",
        'dtype is "{model.dtype}", and the arithmetic with it. Add compute_dtype = "bfloat16", or leave float8 out.',
    ),
    Rule(
        "optimizer.offload",
        (("optimizer.offload", "==", True), ("optimizer.name", "!=", "adamw")),
        "only AdamW's moments can live in the host's memory",
        'optimizer.name is "{optimizer.name}". Leave offload out, or use name = "adamw".',
    ),
    Rule(
        "advantages.objective_weights",
        (("estimator:needs", "has", "objectives"), ("advantages.objective_weights", "==", ())),
        "{advantages.estimator} needs one weight for each objective",
        "Write objective_weights = [1, 0.5], for example.",
    ),
    Rule(
        "advantages.length_penalty",
        (("estimator:needs", "has", "objectives"), ("advantages.length_penalty", "==", True)),
        "{advantages.estimator} looks at objectives, not at scores",
        "Make length one of the objectives instead.",
    ),
    Rule(
        "kl.adaptive_target",
        (("kl.adaptive_target", "<=", 0),),
        "adaptive_target scales reward_coefficient",
        "Both must be more than 0.",
    ),
    Rule(
        "kl.adaptive_target",
        (("kl.adaptive_target", "!=", None), ("kl.reward_coefficient", "<=", 0)),
        "adaptive_target scales reward_coefficient",
        "Both must be more than 0.",
    ),
    Rule(
        "model.dtype",
        (("model.dtype", "==", "float16"),),
        "gradients are too small for float16",
        'Set compute_dtype = "bfloat16", and dtype = "float32" for the weights.',
    ),
    Rule(
        "model.compute_dtype",
        (("model.compute_dtype", "==", "float16"),),
        "gradients are too small for float16",
        'Set compute_dtype = "bfloat16", and dtype = "float32" for the weights.',
    ),
    Rule(
        "loss.imported",
        (("loss.imported", "!=", None), ("loss.name", "!=", "ppo")),
        "import stands in the place of name",
        'Both are set, name to "{loss.name}". Leave one of them out.',
    ),
    Rule(
        "advantages.imported",
        (("advantages.imported", "!=", None), ("advantages.estimator", "!=", "grpo")),
        "import stands in the place of estimator",
        'Both are set, estimator to "{advantages.estimator}". Leave one of them out.',
    ),
    Rule(
        "correction.importance",
        (("loss:against", "==", "sampler"), ("correction.importance", "in", EXPLICIT)),
        "the weight would count twice",
        "The ratio of {loss.name} is against the sampler already. Leave importance out.",
    ),
    Rule(
        "correction.importance",
        (("loss:against", "!=", "sampler"), ("loss:weight", "==", "required"), ("correction.importance", "==", "none")),
        "{loss.name} is that weight",
        'Leave importance out, set importance_high = 0 for an unbounded one, or use loss { name = "ppo" }.',
    ),
    Rule(
        "correction.old_policy",
        (
            ("loss:against", "!=", "sampler"),
            ("loss:weight", "==", "required"),
            ("correction.old_policy", "==", "rollout"),
        ),
        "{loss.name} needs the trainer's own policy beside the sampler's",
        'Leave old_policy out, or use loss { name = "ppo" }.',
    ),
    Rule(
        "correction.importance",
        (
            ("loss:against", "!=", "sampler"),
            ("loss:weight", "!=", "required"),
            ("loss:ratio", "!=", None),
            ("correction.old_policy", "==", "rollout"),
            ("correction.importance", "in", EXPLICIT),
        ),
        "the ratio already holds the weight",
        'With old_policy = "rollout" the ratio is against the sampler. Leave importance out, or use '
        'loss { name = "reinforce" }.',
    ),
    Rule(
        "loss.aggregation",
        (("loss:aggregation", "not in", "@loss:aggregations"),),
        "{loss.name} fixes how its tokens are averaged",
        'Expected {loss:aggregations}, or nothing; got "{loss.aggregation}". Leave it out, or use name = "ppo" with '
        "ratio_level.",
    ),
    Rule(
        "advantages.single",
        (("advantages.single", "!=", None), ("estimator:grouped", "==", False)),
        "{advantages.estimator} does not compare within groups",
        "A group of one is nothing special to it. Leave single out.",
    ),
    Rule(
        "advantages.single",
        (("advantages.single", "==", "score"), ("estimator:least", ">", 1)),
        "{advantages.estimator} compares the best {estimator:least} of a group",
        "A group of one has none. Leave single out.",
    ),
    *BOUNDS,
)

_ORDERED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "in": lambda left, right: right is not None and left in right,
    "not in": lambda left, right: right is not None and left not in right,
    "has": lambda left, right: left is not None and right in left,
    **{name: lambda a, b, f=f: a is not None and b is not None and f(a, b) for name, f in _ORDERED.items()},
}


def broken(config: Any, facts: Mapping[str, Any]) -> list[str]:
    """What is wrong with a configuration, one line each. facts: of its loss and estimator, as `loss:needs`."""

    def value(name: str, entry: Any = None) -> Any:
        if ":" in name:
            return facts[name]
        found, parts = config, name.split(".")
        if parts[0] == "each":
            found, parts = entry, parts[1:]
        for part in parts:
            if found is None:
                return None
            found = found[int(part)] if part.isdigit() else getattr(found, part)
        return found

    def holds(condition: Condition, entry: Any) -> bool:
        left, comparison, right = condition
        if isinstance(right, str) and right.startswith("@"):
            right = value(right[1:], entry)
        return _COMPARED[comparison](value(left, entry), right)

    out = []
    for rule in RULES:
        for entry in value(rule.each) if rule.each else (None,):
            if all(holds(c, entry) for c in rule.when):
                of = functools.partial(value, entry=entry)
                out.append(f"{rule.at}: {filled(rule.text, of)}. {filled(rule.remedy, of)}")
    return out


def filled(text: str, value: Callable[[str], Any]) -> str:
    """text with the values of the settings that it names in braces."""
    out, rest = "", text
    while "{" in rest:
        before, _, rest = rest.partition("{")
        name, closed, after = rest.partition("}")
        if not closed or " " in name or name == "":
            out += before + "{"
            continue
        found = value(name)
        out, rest = out + before + (" or ".join(found) if isinstance(found, tuple) else f"{found}"), after
    return out + rest


def describe() -> list[dict[str, Any]]:
    """The rules for schema.json, and what a plan warns of."""
    return [{"at": r.at, "when": r.when, "text": r.text, "remedy": r.remedy, **({"warning": True} if r.warning else {}),
             **({"each": r.each} if r.each else {})} for r in (*RULES, *IDLE)]  # fmt: skip
