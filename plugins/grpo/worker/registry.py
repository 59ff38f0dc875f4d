"""What a loss and an estimator of advantages say of themselves.

A loss is one function with the decorator `loss`, an estimator one with `estimator`. The decorator states the name and
everything that the rest of the worker, the schema of the block and a plan must know; nothing else lists names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .measure import Metric, checked

RATIO_LEVELS = ("token", "sequence", "sequence_token")
LOSS_NEEDS = ("sampler", "reference", "current")
ESTIMATOR_NEEDS = ("baseline", "objectives", "old")
WEIGHTS = ("multiplied", "explicit", "own", "required")


@dataclass(frozen=True)
class Alias:
    """Another project's name for a loss or an estimator, with what that project fixes by it."""

    name: str
    ratio: str | None = None
    aggregation: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LossSpec:
    """What the decorator `loss` states."""

    name: str
    function: Callable[..., Any]
    ratio: str | None
    against: str
    aggregation: str
    aggregations: tuple[str, ...] | None
    needs: tuple[str, ...]
    weight: str
    unbounded: bool
    aliases: tuple[Alias, ...]
    defaults: Mapping[str, Any]
    select: Callable[..., Tensor] | None
    coefficients: Callable[..., Tensor] | None
    uses: tuple[str, ...] | None

    @property
    def needs_sampler(self) -> bool:
        """Whether every trained token must carry the sampler's log-probability."""
        return "sampler" in self.needs or self.against == "sampler" or self.weight == "required"


@dataclass(frozen=True)
class EstimatorSpec:
    """What the decorator `estimator` states."""

    name: str
    function: Callable[..., Tensor]
    per: str
    grouped: bool
    least: int
    needs: tuple[str, ...]
    uses: tuple[str, ...] | None
    aliases: tuple[Alias, ...]


def _aliases(given: tuple[Alias | str, ...]) -> tuple[Alias, ...]:
    return tuple(a if isinstance(a, Alias) else Alias(a) for a in given)


def _known(what: str, given: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    for name in given:
        if name not in allowed:
            raise ValueError(f"{what}: expected {', '.join(allowed)}, got {name!r}")


def loss(
    name: str, *, ratio: str | None = "token", against: str = "old", aggregation: str = "token-mean",
    aggregations: tuple[str, ...] | None = None, needs: tuple[str, ...] = (), weight: str = "multiplied",
    unbounded: bool = False, aliases: tuple[Alias | str, ...] = (), defaults: Mapping[str, Any] | None = None,
    select: Callable[..., Tensor] | None = None, coefficients: Callable[..., Tensor] | None = None,
    uses: tuple[str, ...] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
    """Makes a policy loss of a function (terms, options) -> Result.

    ratio         level of its importance ratio: token, sequence or sequence_token; None: it has none
    against       what the ratio is taken against: "old" (the policy before the step) or "sampler"
    aggregation   how its tokens are averaged when the recipe does not say
    aggregations  all that its formula permits; None: any
    needs         sampler: each token's log-probability under the sampler; reference: under the reference model;
                  current: the whole batch's under today's weights before the step (one more forward pass)
    weight        of an off-policy correction: "multiplied" by the step, "explicit" (the same, but only when the recipe
                  asks for it: supervised losses), "own" (the function uses terms.weight itself), "required" (the same,
                  and the loss is nothing without it)
    unbounded     a negative advantage makes it fall without bound
    defaults      of options, where they differ from those of LossOptions
    select        (adv, lp, old, options, seed) -> (N,) bool, once a step over the whole batch: terms.selected
    coefficients  (keep, counted, seq, n) -> (N,), where the formula fixes the tokens' weights to the last digit
    uses          options that it reads: a plan warns of others that a recipe sets. Only of the worker's own: no plan
                  runs a user's file
    """
    if ratio is not None:
        _known("ratio", (ratio,), RATIO_LEVELS)
    _known("against", (against,), ("old", "sampler"))
    _known("needs", needs, LOSS_NEEDS)
    _known("weight", (weight,), WEIGHTS)

    def attach(function: Callable[..., Any]) -> Callable[..., Any]:
        function.loss = LossSpec(  # type: ignore[attr-defined]
            name, function, ratio, against, aggregation, aggregations, needs, weight, unbounded, _aliases(aliases),
            defaults or {}, select, coefficients, uses,
        )  # fmt: skip
        return function

    return attach


def estimator(
    name: str, *, per: str = "sequence", grouped: bool = True, least: int = 1, needs: tuple[str, ...] = (),
    uses: tuple[str, ...] | None = None, aliases: tuple[Alias | str, ...] = (),
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:  # fmt: skip
    """Makes an estimator of advantages of a function (inputs, options) -> Tensor.

    per      what it returns one advantage of: "sequence", a vector (S,), or "token", (N,)
    grouped  it compares a sequence with its group: one that is alone in it is left out, or has the score itself
    least    sequences of the smallest group that it can judge
    needs    baseline: group_overrides.reward_baseline; objectives: overrides[].rewards, with
             advantages.objective_weights; old: log-probabilities under the policy before the step
    uses     options that it reads, as for a loss
    """
    _known("per", (per,), ("sequence", "token"))
    _known("needs", needs, ESTIMATOR_NEEDS)

    def attach(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        spec = EstimatorSpec(name, function, per, grouped, least, needs, uses, _aliases(aliases))
        function.estimator = spec  # type: ignore[attr-defined]
        return function

    return attach


class Registry:
    """The functions of a module that a decorator has marked, by name and by alias, in the order of their definition."""

    def __init__(self, what: str, module: Mapping[str, Any]):
        self.specs: dict[str, Any] = {}
        self.aliases: dict[str, tuple[Any, Alias]] = {}
        for spec in [getattr(f, what) for f in module.values() if callable(f) and hasattr(f, what)]:
            for name in (spec.name, *(a.name for a in spec.aliases)):
                if name in self.specs or name in self.aliases:
                    raise ValueError(f"{what} {name!r} is defined twice")
            self.specs[spec.name] = spec
            self.aliases.update({a.name: (spec, a) for a in spec.aliases})

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a recipe may say, own ones first."""
        return (*self.specs, *self.aliases)

    def find(self, name: str) -> tuple[Any, Alias]:
        """The specification, and the alias under which it was asked for (an empty one for its own name)."""
        if name in self.specs:
            return self.specs[name], Alias(name)
        return self.aliases[name]


@dataclass
class Terms:
    """What a loss sees: vectors (N,), one entry a trained token, of whole sequences. Masked tokens are absent.

    lp        log-probability under the policy; the only one that carries a gradient
    old       under the policy before the step (equal to lp.detach() when a batch makes one optimizer step)
    adv       advantage
    seq       which of the n sequences the token belongs to; n counts those of the whole batch
    behavior  under the sampler; NaN where it did not say
    ref       under the reference model; None without one
    selected  what the loss's `select` has picked
    weight    importance weights of the off-policy correction, constant; None when there is none
    """

    lp: Tensor
    old: Tensor
    adv: Tensor
    seq: Tensor
    n: int
    behavior: Tensor | None = None
    ref: Tensor | None = None
    selected: Tensor | None = None
    weight: Tensor | None = None


@dataclass
class Result:
    """What a loss returns: its value (N,) for each token, before aggregation, and metrics (mean, total, maximum)."""

    value: Tensor
    metrics: dict[str, Metric] = field(default_factory=dict)


def evaluate(spec: LossSpec, terms: Terms, options: Any) -> Result:
    """The loss of each token; terms.weight is applied unless the loss does so itself."""
    out = spec.function(terms, options)
    if isinstance(out, Tensor):
        out = Result(out)
    if not isinstance(out, Result) or not isinstance(out.value, Tensor):
        raise TypeError(f"loss {spec.name!r}: expected a Result or a tensor, got {type(out).__name__}")
    if out.value.shape != terms.lp.shape:
        raise ValueError(
            f"loss {spec.name!r}: expected one value a token, shape {tuple(terms.lp.shape)}, got shape "
            f"{tuple(out.value.shape)}"
        )
    value = out.value
    if terms.weight is not None and spec.weight in ("multiplied", "explicit"):
        value = value * terms.weight
    return Result(value, checked(out.metrics))
