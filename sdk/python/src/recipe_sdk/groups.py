"""Groups as they arrive from the trajectory API, checked and read. Nothing is padded, truncated or repaired silently:
a group that breaks a rule is rejected whole, with a reason that is counted and reported."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

IGNORED = -100  # mask value of tokens that are not trained
LARGEST_ID = 2**31 - 1  # of a token, as the trajectory API bounds it
LARGEST = 3.4028234663852886e38  # of float32, in which the worker calculates
LARGEST_SCORE = 1e15  # of a score, as the trajectory API bounds it: squares of scores are added up
NO_LOGPROB = 1.0  # the protocol's placeholder where the sampler has no log-probability


Numbers = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class GroupRejected(ValueError):
    """This group cannot be trained on; `reason` is a short constant for counters, the text says what was wrong."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


@dataclass
class Completion:
    """One completion: whole token sequence, which positions are trained (never 0: nothing predicts it), and the values
    that belong to those positions, in order."""

    tokens: Integers
    positions: Integers
    score: float  # NaN: the environment gave none
    behavior: Numbers  # sampler's log-probabilities; NaN where it gave none
    ref: Numbers | None
    advantage: Numbers | None  # sent by the environment, one per trained token
    zeroed: bool
    temperature: float
    objectives: list[float] | None
    value: Numbers | None  # a critic's, from the environment
    sequence: int = 0  # its place among the sequences of the group as it came
    rollout: int = 0  # of its group, from 0: completions with the same number are parts of one rollout


@dataclass
class Group:
    """The completions of one prompt."""

    env: str
    completions: list[Completion]  # the parts of a rollout follow each other
    versions: tuple[int, int] | None  # oldest and newest policy version that sampled its tokens
    baseline: float | None = None  # reward of the greedy completion (remax)
    left_out: int = 0  # sequences that are not read, because the trainer takes one a rollout

    @property
    def scores(self) -> list[float]:
        """One score a rollout, NaN where it has none."""
        found: list[float] = []
        for c in self.completions:
            if c.rollout == len(found):
                found.append(c.score)
        return found

    def label(self) -> str:
        """How errors name it: the environment and the start of the prompt."""
        head = self.completions[0].tokens[:6].tolist() if self.completions else []
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
    parts: bool = False  # all sequences of a rollout are read, and not only the one with the most trained tokens


def _numbers(value: object, what: str) -> Numbers:
    """A list, or an array of a column, as finite numbers of float32's range."""
    if isinstance(value, list):
        plain = set(map(type, value)) == {float}  # the usual case: there is one for each token
        value = np.array(value if plain else [_number(x, what) for x in value], dtype=np.float64)
    elif not isinstance(value, np.ndarray):
        raise GroupRejected("shape", f"{what} is {type(value).__name__}, expected a list of numbers")
    fine = np.abs(value) <= LARGEST  # not so of NaN
    if not fine.all():
        _number(value[~fine][0].item(), what)
    return value


def _absent(value: object) -> bool:
    """Whether an environment sent nothing, or nothing in it."""
    return not len(value) if isinstance(value, np.ndarray) else not value


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


def _at(values: object, positions: Integers, tokens: int, what: str) -> Numbers:
    """The entries at `positions` of a list with one number per token."""
    if not isinstance(values, (list, np.ndarray)) or len(values) != tokens:
        found = f"{len(values)} entries" if isinstance(values, (list, np.ndarray)) else type(values).__name__
        raise GroupRejected("shape", f"{what} has {found} for {tokens} tokens")
    if isinstance(values, np.ndarray):
        return _numbers(values[positions], what)
    return _numbers([values[t] for t in positions.tolist()], what)


def _ids(tokens: object) -> Integers:
    """A list, or an array of a column, of token ids."""
    integers = isinstance(tokens, list) and set(map(type, tokens)) <= {int, bool}
    if integers or isinstance(tokens, np.ndarray):
        with contextlib.suppress(OverflowError):  # an integer of more than 64 bits
            found = np.array(tokens, dtype=np.int64)
            if len(found) and found.min() >= 0 and found.max() <= LARGEST_ID:
                return found
    raise GroupRejected("tokens", f"tokens must be non-empty lists of token ids from 0 to {LARGEST_ID}")


def trained(mask: Any) -> Integers:
    """The positions that a mask marks as trained."""
    if isinstance(mask, np.ndarray):
        return np.flatnonzero(mask != IGNORED)
    return np.array([t for t, m in enumerate(mask) if m != IGNORED], dtype=np.int64)


def _own_ids(mask: Any, tokens: Integers, marked: Integers, sequence: int) -> None:
    """Refuses a mask that marks tokens by anything but their own ids: what it means is not known."""
    values = np.array(mask, dtype=np.int64)[marked]
    wrong = np.flatnonzero(values != tokens[marked])
    if len(wrong):
        at = int(marked[wrong[0]])
        raise GroupRejected(
            "mask",
            f"masks[{sequence}][{at}] is {values[wrong[0]]}, expected {IGNORED} (not trained) or the token's own id, "
            f"{tokens[at]} (trained)",
        )


def _truncated(override: dict[str, Any], last: int, eos: frozenset[int]) -> bool:
    """Whether a completion was cut off: the environment's finish_reason says so, else the lack of an end token."""
    finish = override.get("finish_reason")
    if isinstance(finish, str):
        return finish == "length"
    return bool(eos) and last not in eos


def differ(scores: list[float]) -> bool:
    """Whether scores differ by more than rounding: 0.1 + 0.2 and 0.3 are one score."""
    known = [x for x in scores if not math.isnan(x)]
    return bool(known) and max(known) - min(known) > max(1e-12, 1e-9 * max(map(abs, known)))


def read_advantage(value: object, tokens: int, trained: Integers, layout: str) -> Numbers | None:
    """One sequence's override as values for its trained positions `trained`, or None when it sends none.

    Accepted: null, absent, []; a bare number or a list of one (broadcast); a list as long as the tokens (entry t
    belongs to token t); with layout "response" a list as long as the trained tokens. Anything else is refused."""
    if value is None or (isinstance(value, (list, np.ndarray)) and not len(value)):
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = [value]
    values = _numbers(value, "advantages")
    if len(values) == 1:
        return np.repeat(values, len(trained))
    if layout == "response":
        if len(values) == len(trained):
            return values
        raise GroupRejected(
            "advantage_length",
            f"advantages has {len(values)} entries, advantage_layout=response expects {len(trained)} (trained tokens)",
        )
    if len(values) == tokens:
        return values[trained]
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


def versions(raw: dict[str, Any]) -> tuple[int, int] | None:
    """The policy versions that sampled a group: policy_version is one number, or the range [oldest, newest]."""
    given = raw.get("policy_version")
    found = given if isinstance(given, list) else [given]
    found = [v for v in found if isinstance(v, int) and not isinstance(v, bool) and 0 <= v < 2**63]
    return (min(found), max(found)) if found else None


def _behavior(logprobs: object, positions: Integers, tokens: int, need: bool) -> Numbers:
    if _absent(logprobs):
        if need:
            raise GroupRejected(
                "missing_logprobs",
                "inference_logprobs is absent, and this configuration needs them (old_policy=rollout or a correction)",
            )
        return np.full(len(positions), math.nan)
    values = _at(logprobs, positions, tokens, "inference_logprobs")
    positive = values > 1e-3
    if not positive.any():
        return values
    if (values[positive] != NO_LOGPROB).any():
        raise GroupRejected("positive_logprob", f"inference_logprobs holds {values.max()}, a probability above 1")
    if need:
        raise GroupRejected("missing_logprobs", "inference_logprobs is the placeholder 1.0 on a trained token")
    return np.where(positive, math.nan, values)


def read_completion(raw: dict[str, Any], i: int, fields: dict[str, list[Any] | None], o: ReadOptions) -> Completion:
    """Sequence i of a group. `fields`: the optional per-sequence lists."""
    tokens, mask, score = _ids(raw["tokens"][i]), raw["masks"][i], raw["scores"][i]
    if o.vocabulary and tokens.max() >= o.vocabulary:
        raise GroupRejected("tokens", f"token id {tokens.max()} is outside the model's vocabulary of {o.vocabulary}")
    if not isinstance(mask, (list, np.ndarray)) or len(mask) != len(tokens):
        raise GroupRejected("shape", f"masks[{i}] and tokens[{i}] have different lengths")
    marked = trained(mask)
    _own_ids(mask, tokens, marked, i)
    prompt = int(marked[0]) if len(marked) else len(tokens)
    for limit, length, what in (
        (o.max_length, len(tokens), "max_length"),
        (o.max_prompt, prompt, "max_prompt_length"),
        (o.max_response, len(tokens) - prompt, "max_response_length"),
    ):
        if limit and length > limit:
            raise GroupRejected("too_long", f"sequence {i} has {length} tokens, {what} is {limit}")
    override = _object((fields["overrides"] or [None] * (i + 1))[i], f"overrides[{i}]")
    # a rollout that has failed is no part of its group's statistics
    score = math.nan if score is None or override.get("failed") else _score(score, f"scores[{i}]")
    sent = read_advantage((fields["advantages"] or [None] * (i + 1))[i], len(tokens), marked, o.advantage_layout)
    if o.mask_truncated and len(marked) and _truncated(override, int(tokens[marked[-1]]), o.eos):
        marked, sent = marked[:0], None
    positions = marked[1:] if prompt == 0 else marked
    if sent is not None and len(positions) < len(marked):
        sent = sent[1:]
    ref = (fields["ref_logprobs"] or [None] * (i + 1))[i]
    if o.need_ref and _absent(ref):
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
        ref=None if _absent(ref) else _at(ref, positions, len(tokens), "ref_logprobs"),
        advantage=sent,
        zeroed=bool(override.get("set_advantage_to_zero")),
        temperature=_temperature(raw, override, o.temperature),
        objectives=objectives,
        value=None if _absent(values) else _at(values, positions, len(tokens), "values"),
        sequence=i,
    )


def _rollouts(completions: list[Completion], overrides: list[Any] | None) -> int:
    """Numbers the rollouts of a group from 0, and returns how many there are. Sequences whose overrides name the same
    number are parts of one; every other sequence is a rollout of its own."""
    number, previous = -1, None
    seen: set[int] = set()
    for i, c in enumerate(completions):
        named = None if overrides is None else _object(overrides[i], f"overrides[{i}]").get("rollout")
        if named is not None and (not isinstance(named, int) or isinstance(named, bool) or named < 0):
            raise GroupRejected("rollout", f"overrides[{i}].rollout is {named!r:.40}, expected the number of a rollout")
        if named is None or named != previous:
            if named in seen:
                raise GroupRejected("rollout", f"sequence {i} is a part of rollout {named}, whose parts stand before "
                                    f"sequence {i - 1}; the parts of a rollout follow each other")  # fmt: skip
            number += 1
        elif c.score != completions[i - 1].score and not math.isnan(c.score + completions[i - 1].score):
            raise GroupRejected("rollout", f"scores[{i}] is {c.score:g}, and another part of rollout {named} has "
                                f"{completions[i - 1].score:g}; the parts of a rollout have one score")  # fmt: skip
        if named is not None:
            seen.add(named)
        c.rollout, previous = number, named
    return number + 1


def _longest(completions: list[Completion]) -> list[Completion]:
    """Of each rollout the part with the most trained tokens."""
    best: dict[int, Completion] = {}
    for c in completions:
        if c.rollout not in best or len(c.positions) > len(best[c.rollout].positions):
            best[c.rollout] = c
    return list(best.values())


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
    completions = [read_completion(raw, i, fields, o) for i in range(n)]
    if _rollouts(completions, fields["overrides"]) < n and not o.parts:
        completions = _longest(completions)
    env = raw.get("env_id")
    baseline = _object(raw.get("group_overrides"), "group_overrides").get("reward_baseline")
    return Group(
        env="anonymous" if env is None else str(env),
        completions=completions,
        versions=versions(raw),
        baseline=None if baseline is None else _score(baseline, "group_overrides.reward_baseline"),
        left_out=n - len(completions),
    )
