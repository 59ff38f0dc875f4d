"""A batch as tensors: flat, unshifted, the same on every rank.

T counts all tokens of the batch, n its sequences. Entry t of every [T] vector belongs to token t itself: whether it is
trained, its log-probability, its advantage. Nothing is shifted here. A model's output at t - 1 predicts token t, and
the shift is the trainer's: token 0 of a sequence is never trained, because nothing predicts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .advantages import group_relative
from .groups import Group

Estimate = Callable[[Tensor, Tensor, int], Tensor]


@dataclass
class GroupBatch:
    """A batch whose groups are read and checked, before it becomes tensors."""

    number: int  # its place in this run's order; checkpoints keep it
    step: int  # the step that trains it, from 1
    groups: list[Group]
    raw: list[dict[str, Any]]  # the same groups as they came; numbers in lists, or in arrays after an Arrow stream
    facts: dict[str, Any] = field(default_factory=dict)  # what was left out and why, staleness: metrics
    waited: float = 0.0  # seconds
    lease: str | None = None  # of the trajectory API; None when it has none, or an earlier life of this run had it
    places: list[int] = field(default_factory=list)  # of each group in the batch as it came


@dataclass
class Row:
    """Sequences packed end to end for one forward pass of t tokens."""

    sequences: list[int]
    tokens: Tensor  # int64 [1, t]
    position_ids: Tensor  # int64 [1, t], restarting with each sequence
    boundaries: Tensor  # int32 [sequences + 1], cumulative lengths: what variable-length attention kernels take
    longest: int
    index: Tensor  # int64 [t]: where each token lies in the batch's [T] vectors


@dataclass
class Batch:
    """What a trainer gets for one step. All tensors are on the CPU."""

    number: int
    step: int
    tokens: Tensor  # int64 [T]
    trained: Tensor  # bool [T]
    inference_logprobs: Tensor  # float32 [T] of the sampler, natural logarithm; 0 where not trained or unknown
    has_logprobs: Tensor  # bool [n]: the sampler's log-probability of every trained token is there
    advantages: (
        Tensor  # float32 [T], 0 where not trained: the environment's, else (score - mean) / deviation of the group
    )
    advantages_sent: Tensor  # bool [n]: the environment sent this sequence's advantages
    ref_logprobs: Tensor | None  # float32 [T], 0 where not trained; None unless every sequence brings them
    offsets: Tensor  # int64 [n + 1] into T
    scores: Tensor  # float32 [n], NaN where the environment gave none
    temperature: Tensor  # float32 [n] that the tokens were sampled at
    group: Tensor  # int64 [n], 0 ... groups - 1; -1 for sequences that fill added
    versions: Tensor  # int64 [n, 2], oldest and newest policy version that sampled it; -1 unknown
    env: Tensor  # int64 [n] into env_ids; -1 for sequences that fill added
    env_ids: list[str]
    raw: list[dict[str, Any]]  # the groups as they came
    sequences_total: int  # over all ranks: share and fill keep these three
    trained_total: int
    groups_total: int

    @staticmethod
    def build(taken: GroupBatch, estimate: Estimate = group_relative) -> Batch:
        """The tensors of a batch. Groups keep their order; a group's sequences stay together.

        estimate(scores float64 [n], group int64 [n], groups) -> float64 [n]: advantages of the sequences for which the
        environment sends none. A score is NaN where there is none."""
        groups = taken.groups
        done = [c for g in groups for c in g.completions]
        lengths = torch.tensor([len(c.tokens) for c in done], dtype=torch.long)
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        counts = torch.tensor([len(c.positions) for c in done], dtype=torch.long)
        total = int(offsets[-1])
        at = _joined([c.positions for c in done]) + torch.repeat_interleave(offsets[:-1], counts)
        owner = torch.repeat_interleave(torch.arange(len(done)), counts)

        def spread(values: Tensor) -> Tensor:
            """[N] over the trained tokens -> float32 [T]."""
            out = torch.zeros(total, dtype=torch.float32)
            out[at] = values.float()
            return out

        trained = torch.zeros(total, dtype=torch.bool)
        trained[at] = True
        behavior = _joined([c.behavior for c in done])
        known = ~torch.isnan(behavior)
        group = _integers(k for k, g in enumerate(groups) for _ in g.completions)
        scores = _numbers(c.score for c in done)
        own = torch.tensor([c.advantage is not None for c in done], dtype=torch.bool)
        zero = torch.tensor([c.zeroed for c in done], dtype=torch.bool)
        sent = _joined([np.zeros(len(c.positions)) if c.advantage is None else c.advantage for c in done])
        advantage = torch.where(own[owner], sent, estimate(scores, group, len(groups))[owner])
        env_ids = sorted({g.env for g in groups})
        whole_ref = bool(done) and all(c.ref is not None or not len(c.positions) for c in done)
        ref = [c.ref for c in done if c.ref is not None]
        return Batch(
            number=taken.number,
            step=taken.step,
            tokens=_joined([c.tokens for c in done]),
            trained=trained,
            inference_logprobs=spread(behavior.nan_to_num(0.0)),
            has_logprobs=torch.bincount(owner[known], minlength=len(done)) == counts,
            advantages=spread(torch.where(zero[owner], torch.zeros_like(advantage), advantage)),
            advantages_sent=own | zero,
            ref_logprobs=spread(_joined(ref)) if whole_ref else None,
            offsets=offsets,
            scores=scores.float(),
            temperature=_numbers(c.temperature for c in done).float(),
            group=group,
            versions=_integers(
                v for g in groups for _ in g.completions for v in (g.versions if g.versions is not None else (-1, -1))
            ).view(-1, 2),
            env=_integers(env_ids.index(g.env) for g in groups for _ in g.completions),
            env_ids=env_ids,
            raw=taken.raw,
            sequences_total=len(done),
            trained_total=len(at),
            groups_total=len(groups),
        )

    def __len__(self) -> int:
        """Sequences."""
        return len(self.scores)

    @property
    def lengths(self) -> Tensor:
        """int64 [n]: tokens of each sequence."""
        return self.offsets.diff()

    def take(self, sequences: list[int]) -> Batch:
        """The batch with these sequences only, in this order. The totals stay those of the whole batch."""
        index = self.index(sequences)
        chosen = torch.tensor(sequences, dtype=torch.long)
        lengths = self.lengths[chosen]
        return replace(
            self, tokens=self.tokens[index], trained=self.trained[index], advantages=self.advantages[index],
            inference_logprobs=self.inference_logprobs[index], advantages_sent=self.advantages_sent[chosen],
            ref_logprobs=None if self.ref_logprobs is None else self.ref_logprobs[index],
            offsets=torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]), has_logprobs=self.has_logprobs[chosen],
            scores=self.scores[chosen], temperature=self.temperature[chosen], group=self.group[chosen],
            versions=self.versions[chosen], env=self.env[chosen],
        )  # fmt: skip

    def share(self, rank: int, world: int, *, whole_groups: bool = False) -> Batch:
        """The part of one rank: the sequences of members. fill makes parts equal."""
        return self.take(self.members(rank, world, whole_groups=whole_groups))

    def members(self, rank: int, world: int, *, whole_groups: bool = False) -> list[int]:
        """The sequences of one rank, balanced by tokens: each sequence (with whole_groups each group) is in exactly one
        part. Parts differ in size and may be empty. Computed alike on every rank."""
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank}: expected 0 to {world - 1}")
        unit = self.group if whole_groups else torch.arange(len(self))
        members: dict[int, list[int]] = {}
        for i, k in enumerate(unit.tolist()):
            members.setdefault(k, []).append(i)
        lengths = self.lengths.tolist()
        cost = {k: sum(lengths[i] for i in m) for k, m in members.items()}
        load, mine = [0] * world, list[int]()
        for k in sorted(members, key=lambda k: (-cost[k], k)):
            lightest = min(range(world), key=lambda r: (load[r], r))
            load[lightest] += cost[k]
            if lightest == rank:
                mine += members[k]
        return sorted(mine)

    def fill(self, n: int) -> Batch:
        """The batch with sequences of two tokens added, of which nothing is trained, until there are n: for trainers
        that need the same number of rows on each rank. ValueError when it has more than n already."""
        more = n - len(self)
        if more < 0:
            raise ValueError(f"the batch has {len(self)} sequences, more than the {n} to fill up to")
        if more == 0:
            return self

        def longer(x: Tensor, count: int, value: float) -> Tensor:
            return torch.cat([x, x.new_full((count, *x.shape[1:]), value)])

        steps = torch.arange(1, more + 1) * 2
        return replace(
            self, tokens=longer(self.tokens, 2 * more, 0), trained=longer(self.trained, 2 * more, False),
            inference_logprobs=longer(self.inference_logprobs, 2 * more, 0.0),
            advantages=longer(self.advantages, 2 * more, 0.0),
            ref_logprobs=None if self.ref_logprobs is None else longer(self.ref_logprobs, 2 * more, 0.0),
            offsets=torch.cat([self.offsets, self.offsets[-1] + steps]),
            advantages_sent=longer(self.advantages_sent, more, True),
            has_logprobs=longer(self.has_logprobs, more, True), scores=longer(self.scores, more, float("nan")),
            temperature=longer(self.temperature, more, 1.0), group=longer(self.group, more, -1),
            versions=longer(self.versions, more, -1), env=longer(self.env, more, -1),
        )  # fmt: skip

    def padded(self, pad: int) -> dict[str, Tensor]:
        """Rectangles, as TRL takes them; P and C are the longest prompt and completion. A completion runs from the
        first trained token to the end; where nothing is trained it is the last token.

        prompt_ids, prompt_mask: int64 [n, P], padded on the left with `pad` and 0. completion_ids, completion_mask
        (1: a token, 0: padding), trained (1: a token that is trained): int64 [n, C], padded on the right. advantages,
        inference_logprobs, and ref_logprobs where there are any: float32 [n, C], 0 in the padding."""
        start, end, split = self._splits()
        left, right = split - start, end - split
        prompt, completion = (torch.arange(int(x.max()) if len(x) else 0) for x in (left, right))
        before = prompt[None] >= (len(prompt) - left)[:, None]
        after = completion[None] < right[:, None]
        source = (start[:, None] + prompt[None] - (len(prompt) - left)[:, None])[before]
        target = (split[:, None] + completion[None])[after]

        def rectangle(mask: Tensor, values: Tensor, filler: float) -> Tensor:
            out = values.new_full(mask.shape, filler)
            out[mask] = values
            return out

        out = {
            "prompt_ids": rectangle(before, self.tokens[source], pad), "prompt_mask": before.long(),
            "completion_ids": rectangle(after, self.tokens[target], pad), "completion_mask": after.long(),
            "trained": rectangle(after, self.trained[target].long(), 0),
            "advantages": rectangle(after, self.advantages[target], 0.0),
            "inference_logprobs": rectangle(after, self.inference_logprobs[target], 0.0),
        }  # fmt: skip
        if self.ref_logprobs is not None:
            out["ref_logprobs"] = rectangle(after, self.ref_logprobs[target], 0.0)
        return out

    def nested(self) -> dict[str, Tensor]:
        """Jagged nested tensors, as verl takes them: input_ids, position_ids over whole sequences; prompts; responses,
        response_mask (float32), old_log_probs, advantages and, where there are any, ref_log_prob over responses.
        Prompts and responses are cut as padded cuts them."""
        start, end, split = self._splits()

        def jagged(values: Tensor, first: Tensor, last: Tensor) -> Tensor:
            lengths = last - first
            offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
            index = torch.arange(int(offsets[-1])) + torch.repeat_interleave(first - offsets[:-1], lengths)
            make: Callable[[Tensor, Tensor], Tensor] = torch.nested.nested_tensor_from_jagged
            return make(values[index], offsets)

        positions = torch.arange(len(self.tokens)) - torch.repeat_interleave(start, end - start)
        out = {
            "input_ids": jagged(self.tokens, start, end), "position_ids": jagged(positions, start, end),
            "prompts": jagged(self.tokens, start, split), "responses": jagged(self.tokens, split, end),
            "response_mask": jagged(self.trained.float(), split, end),
            "old_log_probs": jagged(self.inference_logprobs, split, end),
            "advantages": jagged(self.advantages, split, end),
        }  # fmt: skip
        if self.ref_logprobs is not None:
            out["ref_log_prob"] = jagged(self.ref_logprobs, split, end)
        return out

    def rows(self, tokens: int) -> list[Row]:
        """Sequences packed first-fit decreasing into rows of at most `tokens` tokens; one that is longer has a row of
        its own. The result depends on nothing but the batch and `tokens`."""
        lengths = self.lengths.tolist()
        packed: list[list[int]] = []
        room: list[int] = []
        for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
            k = next((k for k, free in enumerate(room) if lengths[i] <= free), None)
            if k is None:
                packed.append([i])
                room.append(tokens - lengths[i])
            else:
                packed[k].append(i)
                room[k] -= lengths[i]
        return [self._row(sorted(members)) for members in packed]

    def _row(self, members: list[int]) -> Row:
        index = self.index(members)
        sizes = self.lengths[members]
        boundaries = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        positions = torch.arange(len(index)) - torch.repeat_interleave(boundaries[:-1], sizes)
        return Row(members, self.tokens[index][None], positions[None], boundaries.int(), int(sizes.max()), index)

    def index(self, sequences: list[int]) -> Tensor:
        """int64: where the tokens of these sequences lie in the [T] vectors."""
        chosen = torch.tensor(sequences, dtype=torch.long)
        lengths = self.lengths[chosen]
        ends = lengths.cumsum(0)
        return torch.arange(int(ends[-1]) if len(ends) else 0) + torch.repeat_interleave(
            self.offsets[:-1][chosen] - (ends - lengths), lengths
        )

    def _splits(self) -> tuple[Tensor, Tensor, Tensor]:
        """int64 [n] each: where a sequence starts, ends, and where its completion starts."""
        start, end = self.offsets[:-1], self.offsets[1:]
        owner = torch.repeat_interleave(torch.arange(len(self)), end - start)
        place = torch.where(self.trained, torch.arange(len(self.tokens)), len(self.tokens))
        first = torch.full_like(start, len(self.tokens)).scatter_reduce(0, owner, place, "amin")
        return start, end, torch.where(first < len(self.tokens), first, torch.maximum(end - 1, start + 1))


def _integers(values: Iterable[int]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.long)


def _joined(parts: Sequence[npt.NDArray[Any]]) -> Tensor:
    """The entries of all parts, one part after the other."""
    return torch.from_numpy(np.concatenate(parts))


def _numbers(values: Iterable[float]) -> Tensor:
    return torch.tensor(list(values), dtype=torch.float64)
