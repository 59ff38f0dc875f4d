"""Groups as they arrive from the trajectory API, checked and read. Nothing is padded, truncated or repaired silently:
a group that breaks a rule is rejected whole, with a reason that is counted and reported."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

IGNORED = -100  # mask value of tokens that are not trained
LARGEST_ID = 2**31 - 1  # of a token, as the trajectory API bounds it
LARGEST = 3.4028234663852886e38  # of float32, in which the worker calculates
LARGEST_SCORE = 1e15  # of a score, as the trajectory API bounds it: squares of scores are added up
NO_LOGPROB = 1.0  # the protocol's placeholder where the sampler has no log-probability


class GroupRejected(ValueError):
    """This group cannot be trained on; `reason` is a short constant for counters, the text says what was wrong."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


@dataclass
class Completion:
    """One completion: whole token sequence, which positions are trained (never 0: nothing predicts it), and the values
    that belong to those positions, in order."""

    tokens: list[int]
    positions: list[int]
    score: float  # NaN: the environment gave none
    behavior: list[float]  # sampler's log-probabilities; NaN where it gave none
    ref: list[float] | None
    advantage: list[float] | None  # sent by the environment, one per trained token
    zeroed: bool
    temperature: float
    objectives: list[float] | None
    value: list[float] | None  # a critic's, from the environment


@dataclass
class Group:
    """The completions of one prompt."""

    env: str
    completions: list[Completion]
    versions: tuple[int, int] | None  # oldest and newest policy version that sampled its tokens
    baseline: float | None = None  # reward of the greedy completion (remax)

    def label(self) -> str:
        """How errors name it: the environment and the start of the prompt."""
        head = self.completions[0].tokens[:6] if self.completions else []
        return f"env_id {self.env}, group of {len(self.completions)} starting with tokens {head}"


@dataclass(frozen=True)
class ReadOptions:
    """The limits and conventions of this run."""

    max_length: int = 0  # tokens of a whole sequence, 0 = no limit
    max_prompt: int = 0
    max_response: int = 0
    advantage_layout: str = "auto"  # or "response": lists have one entry per trained token
    need_logprobs: bool = False
    need_ref: bool = False
    temperature: float = 1.0
    mask_truncated: bool = False
    eos: frozenset[int] = field(default_factory=frozenset)
    vocabulary: int = 0


def _numbers(value: object, what: str) -> list[float]:
    if not isinstance(value, list):
        raise GroupRejected("shape", f"{what} is {type(value).__name__}, expected a list of numbers")
    if set(map(type, value)) == {float} and all(map(math.isfinite, value)) and max(map(abs, value)) <= LARGEST:
        return value  # the usual case, ten times faster: there is one for each token
    return [_number(x, what) for x in value]


def _number(x: object, what: str) -> float:
    try:
        if not isinstance(x, bool) and isinstance(x, (int, float)) and abs(x) <= LARGEST:
            return float(x)
    except OverflowError:  # an integer of hundreds of digits
        pass
    raise GroupRejected("not_finite", f"{what} holds {x!r:.40}, expected finite numbers only")


def _score(x: object, what: str) -> float:
    found = _number(x, what)
    if abs(found) > LARGEST_SCORE:
        raise GroupRejected("score", f"{what} is {found:g}, expected -1e15 to 1e15: its square is added up in float32")
    return found


def _object(value: object, what: str) -> dict[str, Any]:
    """An optional JSON object."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise GroupRejected("shape", f"{what} is {type(value).__name__}, expected an object")
    return value


def _at(values: object, positions: list[int], tokens: int, what: str) -> list[float]:
    """The entries at `positions` of a list with one number per token."""
    if not isinstance(values, list) or len(values) != tokens:
        found = f"{len(values)} entries" if isinstance(values, list) else type(values).__name__
        raise GroupRejected("shape", f"{what} has {found} for {tokens} tokens")
    whole = bool(positions) and positions[-1] - positions[0] + 1 == len(positions)  # without a gap
    chosen = values[positions[0] : positions[-1] + 1] if whole else [values[t] for t in positions]
    return _numbers(chosen, what)


def _ids(tokens: object) -> bool:
    """Whether these are token ids."""
    if not isinstance(tokens, list) or not tokens:
        return False
    if set(map(type, tokens)) != {int} and not all(isinstance(t, int) for t in tokens):
        return False
    return bool(min(tokens) >= 0 and max(tokens) <= LARGEST_ID)


def _trained(mask: list[Any]) -> list[int]:
    """Positions that are trained. Most masks are a prompt that is not and a completion that is."""
    first = 0
    while first < len(mask) and mask[first] == IGNORED:
        first += 1
    if mask.count(IGNORED) == first:
        return list(range(first, len(mask)))
    return [t for t, m in enumerate(mask) if m != IGNORED]


def read_advantage(value: object, tokens: int, trained: list[int], layout: str) -> list[float] | None:
    """One sequence's override as values for its trained positions `trained`, or None when it sends none.

    Accepted: null, absent, []; a bare number or a list of one (broadcast); a list as long as the tokens (entry t
    belongs to token t); with layout "response" a list as long as the trained tokens. Anything else is refused."""
    if value is None or value == []:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = [value]
    values = _numbers(value, "advantages")
    if len(values) == 1:
        return values * len(trained)
    if layout == "response":
        if len(values) == len(trained):
            return values
        raise GroupRejected(
            "advantage_length",
            f"advantages has {len(values)} entries, advantage_layout=response expects {len(trained)} (trained tokens)",
        )
    if len(values) == tokens:
        return [values[t] for t in trained]
    raise GroupRejected(
        "advantage_length",
        f"advantages has {len(values)} entries for {tokens} tokens; expected {tokens}, 1, or none "
        "(advantage_layout=response takes one per trained token)",
    )


def _per_sequence(raw: dict[str, Any], key: str, n: int) -> list[Any] | None:
    """raw[key] as a list with one entry per sequence; None when the environment sent nothing."""
    value = raw.get(key)
    if not value:
        return None
    if not isinstance(value, list) or len(value) != n:
        raise GroupRejected("shape", f"{key} does not have one entry for each of the {n} sequences")
    return value


def _temperature(raw: dict[str, Any], override: dict[str, Any], default: float) -> float:
    for source in (override, *(_object(raw.get(k), k) for k in ("generation_params", "group_overrides"))):
        value = source.get("temperature")
        if value is not None:
            found = _number(value, "temperature")
            if found <= 0:
                raise GroupRejected("temperature", f"temperature is {value!r}; greedy samples cannot be trained on")
            return found
    return default


def _versions(raw: dict[str, Any]) -> tuple[int, int] | None:
    """The policy versions that sampled a group: policy_version is one number, or the range [oldest, newest]."""
    given = raw.get("policy_version")
    found = given if isinstance(given, list) else [given]
    found = [v for v in found if isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63]
    return (min(found), max(found)) if found else None


def _behavior(logprobs: object, positions: list[int], tokens: int, need: bool) -> list[float]:
    if not logprobs:
        if need:
            raise GroupRejected(
                "missing_logprobs",
                "inference_logprobs is absent, and this configuration needs them (old_policy=rollout or a correction)",
            )
        return [math.nan] * len(positions)
    values = _at(logprobs, positions, tokens, "inference_logprobs")
    if not values or max(values) <= 1e-3:
        return values
    if any(v > 1e-3 and v != NO_LOGPROB for v in values):
        raise GroupRejected("positive_logprob", f"inference_logprobs holds {max(values)}, a probability above 1")
    known = [v if v <= 1e-3 else math.nan for v in values]
    if need and any(math.isnan(v) for v in known):
        raise GroupRejected("missing_logprobs", "inference_logprobs is the placeholder 1.0 on a trained token")
    return known


def read_completion(raw: dict[str, Any], i: int, fields: dict[str, list[Any] | None], o: ReadOptions) -> Completion:
    """Sequence i of a group. `fields`: the optional per-sequence lists."""
    tokens, mask, score = raw["tokens"][i], raw["masks"][i], raw["scores"][i]
    if not _ids(tokens):
        raise GroupRejected("tokens", f"tokens must be non-empty lists of token ids from 0 to {LARGEST_ID}")
    if o.vocabulary and max(tokens) >= o.vocabulary:
        raise GroupRejected("tokens", f"token id {max(tokens)} is outside the model's vocabulary of {o.vocabulary}")
    if not isinstance(mask, list) or len(mask) != len(tokens):
        raise GroupRejected("shape", f"masks[{i}] and tokens[{i}] have different lengths")
    trained = _trained(mask)
    prompt = trained[0] if trained else len(tokens)
    for limit, length, what in (
        (o.max_length, len(tokens), "max_length"),
        (o.max_prompt, prompt, "max_prompt_length"),
        (o.max_response, len(tokens) - prompt, "max_response_length"),
    ):
        if limit and length > limit:
            raise GroupRejected("too_long", f"sequence {i} has {length} tokens, {what} is {limit}")
    override = _object((fields["overrides"] or [None] * (i + 1))[i], f"overrides[{i}]")
    score = math.nan if score is None else _score(score, f"scores[{i}]")
    sent = read_advantage((fields["advantages"] or [None] * (i + 1))[i], len(tokens), trained, o.advantage_layout)
    if o.mask_truncated and o.eos and trained and tokens[trained[-1]] not in o.eos:
        trained, sent = [], None
    positions = trained[1:] if trained[:1] == [0] else trained
    if sent is not None and len(positions) < len(trained):
        sent = sent[1:]
    ref = (fields["ref_logprobs"] or [None] * (i + 1))[i]
    if o.need_ref and not ref:
        raise GroupRejected("missing_ref_logprobs", "ref_logprobs is absent, and reference.source is data")
    objectives = override.get("rewards") or None
    if isinstance(objectives, dict):
        objectives = [objectives[k] for k in sorted(objectives)]
    if objectives is not None:
        if not isinstance(objectives, list):
            raise GroupRejected("shape", f"overrides[{i}].rewards is {type(objectives).__name__}, expected a list")
        objectives = [math.nan if x is None else _score(x, f"overrides[{i}].rewards") for x in objectives]
    values = (fields["values"] or [None] * (i + 1))[i]
    sampled = (fields["inference_logprobs"] or [None] * (i + 1))[i]
    return Completion(
        tokens=tokens,
        positions=positions,
        score=score,
        behavior=_behavior(sampled, positions, len(tokens), o.need_logprobs),
        ref=_at(ref, positions, len(tokens), "ref_logprobs") if ref else None,
        advantage=sent,
        zeroed=bool(override.get("set_advantage_to_zero")),
        temperature=_temperature(raw, override, o.temperature),
        objectives=objectives,
        value=_at(values, positions, len(tokens), "values") if values else None,
    )


def read_group(raw: object, o: ReadOptions) -> Group:
    """One group of a /batch answer. Raises GroupRejected, and nothing else whatever the group holds: an exception that
    ended the worker would end each later life of it too, because the batch comes again."""
    try:
        return _read_group(raw, o)
    except GroupRejected:
        raise
    except Exception as e:
        raise GroupRejected("unreadable", f"{type(e).__name__}: {e}") from e


def _read_group(raw: object, o: ReadOptions) -> Group:
    if not isinstance(raw, dict) or not all(isinstance(raw.get(k), list) for k in ("tokens", "masks", "scores")):
        raise GroupRejected("shape", "a group needs the lists tokens, masks and scores")
    n = len(raw["tokens"])
    if n == 0 or len(raw["masks"]) != n or len(raw["scores"]) != n:
        raise GroupRejected("shape", f"{n} token lists, {len(raw['masks'])} masks, {len(raw['scores'])} scores")
    optional = ("inference_logprobs", "ref_logprobs", "advantages", "overrides", "values")
    fields = {k: _per_sequence(raw, k, n) for k in optional}
    env = raw.get("env_id")
    baseline = _object(raw.get("group_overrides"), "group_overrides").get("reward_baseline")
    return Group(
        env="anonymous" if env is None else str(env),
        completions=[read_completion(raw, i, fields, o) for i in range(n)],
        versions=_versions(raw),
        baseline=None if baseline is None else _score(baseline, "group_overrides.reward_baseline"),
    )
