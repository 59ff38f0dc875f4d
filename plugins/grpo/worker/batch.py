"""Groups to tensors: flat vectors over the trained tokens of the whole batch, and packed rows for the model.

This is the only place that shifts: the log-probability of the token at position t comes from the model's output at
t - 1. Everywhere else a vector's entry belongs to the token (the label) itself: its mask, the sampler's and the
reference's log-probability, its advantage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from recipe_sdk.groups import Group, Numbers
from torch import Tensor


@dataclass
class Batch:
    """All trained tokens of a batch as (N,) vectors ordered by sequence, on the CPU; S sequences of R rollouts in G
    groups. A rollout is one sequence, or several that follow each other."""

    groups: list[Group]
    tokens: list[Tensor]  # per sequence, whole
    positions: list[Tensor]  # per sequence, trained positions (all >= 1)
    offset: Tensor  # (S + 1,) where each sequence's entries start in the (N,) vectors
    seq: Tensor  # (N,)
    behavior: Tensor  # (N,) NaN where unknown
    ref: Tensor  # (N,) NaN where unknown
    sent: Tensor  # (N,) advantages from the environment, NaN where none
    value: Tensor  # (N,) critic values from the environment, 0 where none
    temperature: Tensor  # (N,)
    group: Tensor  # (S,)
    rollout: Tensor  # (S,) ascending from 0
    score: Tensor  # (S,) NaN where the environment gave none
    has_sent: Tensor  # (S,) bool
    zeroed: Tensor  # (S,) bool

    @property
    def n(self) -> int:
        """Sequences."""
        return len(self.tokens)

    @property
    def rollouts(self) -> int:
        """R."""
        return int(self.rollout[-1]) + 1 if self.n else 0

    @property
    def first(self) -> Tensor:
        """(R,) the first sequence of each rollout: what all parts of a rollout share is read there."""
        return torch.searchsorted(self.rollout, torch.arange(self.rollouts))

    @property
    def size(self) -> int:
        """Trained tokens."""
        return len(self.seq)

    @property
    def length(self) -> Tensor:
        """(S,) trained tokens of each sequence."""
        return self.offset.diff()

    @property
    def total_tokens(self) -> int:
        """Tokens the model reads, prompts included."""
        return sum(len(t) for t in self.tokens)


def build(groups: list[Group], dtype: torch.dtype = torch.float64) -> Batch:
    """Lays the groups out flat. Groups keep their order; a group's sequences stay together."""
    done = [c for g in groups for c in g.completions]
    counts = np.array([len(c.positions) for c in done], dtype=np.int64)
    offset = torch.from_numpy(np.concatenate([[0], counts.cumsum()]))
    first = np.cumsum([0] + [len(g.scores) for g in groups])  # rollout of each group

    def flat(parts: Iterable[Numbers | None], missing: float) -> Tensor:
        """(N,) of one array a sequence; `missing` on the tokens of a sequence that has none."""
        arrays = [np.full(n, missing) if part is None else part for part, n in zip(parts, counts, strict=True)]
        return torch.from_numpy(np.concatenate([*arrays, np.empty(0)])).to(dtype)

    def each(values: Iterable[float]) -> Tensor:
        """(N,) of one value a sequence."""
        return torch.from_numpy(np.repeat(np.array(list(values), dtype=np.float64), counts)).to(dtype)

    return Batch(
        groups=groups,
        tokens=[torch.from_numpy(c.tokens) for c in done],
        positions=[torch.from_numpy(c.positions) for c in done],
        offset=offset,
        seq=torch.from_numpy(np.repeat(np.arange(len(done)), counts)),
        behavior=flat((c.behavior for c in done), math.nan),
        ref=flat((c.ref for c in done), math.nan),
        sent=flat((c.advantage for c in done), math.nan),
        value=flat((c.value for c in done), 0.0),
        temperature=each(c.temperature for c in done),
        group=torch.tensor([k for k, g in enumerate(groups) for _ in g.completions], dtype=torch.long),
        rollout=torch.tensor(
            [int(first[k]) + c.rollout for k, g in enumerate(groups) for c in g.completions], dtype=torch.long
        ),
        score=torch.tensor([c.score for c in done], dtype=dtype),
        has_sent=torch.tensor([c.advantage is not None for c in done], dtype=torch.bool),
        zeroed=torch.tensor([c.zeroed for c in done], dtype=torch.bool),
    )


@dataclass
class Row:
    """Sequences packed end to end for one forward pass.

    read (T', ) indexes the model's output positions whose prediction is scored; index (T',) says which entry of the
    batch's (N,) vectors each of them is; label (T',) is the token predicted there."""

    sequences: list[int]
    ids: Tensor  # (1, T)
    position_ids: Tensor  # (1, T), restarting with each sequence
    boundaries: Tensor  # (sequences + 1,) int32: cumulative lengths
    longest: int
    read: Tensor
    label: Tensor
    index: Tensor
    temperature: Tensor

    def to(self, device: torch.device | str) -> Row:
        """The same row with its tensors on `device`."""
        moved = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in self.__dict__.items()}
        return Row(**moved)


def whole_row(ids: Tensor, temperature: float = 1.0) -> Row:
    """One sequence, (n,) token ids, of which every token but the first is scored."""
    n = len(ids)
    scored = torch.arange(n - 1)
    return Row([0], ids[None], torch.arange(n)[None], torch.tensor([0, n], dtype=torch.int32), n, scored, ids[1:],
               scored, torch.full((n - 1,), temperature, dtype=torch.float64))  # fmt: skip


def make_row(batch: Batch, sequences: list[int]) -> Row:
    """Packs the named sequences. The shift happens here: position t is read from output t - 1."""
    lengths = [len(batch.tokens[i]) for i in sequences]
    starts = [0]
    for n in lengths:
        starts.append(starts[-1] + n)
    index = torch.cat([torch.arange(int(batch.offset[i]), int(batch.offset[i + 1])) for i in sequences])
    return Row(
        sequences=sequences,
        ids=torch.cat([batch.tokens[i] for i in sequences])[None],
        position_ids=torch.cat([torch.arange(n) for n in lengths])[None],
        boundaries=torch.tensor(starts, dtype=torch.int32),
        longest=max(lengths),
        read=torch.cat([batch.positions[i] - 1 + s for i, s in zip(sequences, starts, strict=False)]),
        label=torch.cat([batch.tokens[i][batch.positions[i]] for i in sequences]),
        index=index,
        temperature=batch.temperature[index],
    )


def sample(vocabulary: int, lengths: tuple[int, ...] = (96, 64)) -> Row:
    """A row of made-up tokens, all but the first of each sequence trained."""
    n = sum(lengths)
    ids = torch.arange(n) * 7919 % vocabulary
    positions = torch.cat([torch.arange(k) for k in lengths])
    label = torch.nonzero(positions).flatten()
    boundaries = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    return Row(list(range(len(lengths))), ids[None], positions[None], boundaries, max(lengths), label - 1, ids[label],
               torch.arange(len(label)), torch.ones(len(label), dtype=torch.float64))  # fmt: skip


def pack(batch: Batch, sequences: Iterable[int], max_tokens: int) -> list[Row]:
    """First-fit decreasing into rows of at most max_tokens tokens (one sequence may exceed it alone). Sequences with
    nothing trained are left out. The result depends on nothing but the arguments."""
    wanted = [i for i in sequences if len(batch.positions[i])]
    rows: list[list[int]] = []
    room: list[int] = []
    for i in sorted(wanted, key=lambda i: (-len(batch.tokens[i]), i)):
        need = len(batch.tokens[i])
        for k, free in enumerate(room):
            if need <= free:
                rows[k].append(i)
                room[k] -= need
                break
        else:
            rows.append([i])
            room.append(max_tokens - need)
    return [make_row(batch, sorted(r)) for r in rows]


def split(batch: Batch, rollouts_per_part: int) -> list[list[int]]:
    """The sequences of whole groups gathered into optimizer batches of about `rollouts_per_part` rollouts (0 = all in
    one). One of which nothing is trained is left out."""
    if rollouts_per_part <= 0:
        return [list(range(batch.n))]
    parts: list[list[int]] = [[]]
    held = 0
    for k, g in enumerate(batch.groups):
        more = len(g.scores)
        if parts[-1] and held + more > rollouts_per_part:
            parts.append([])
            held = 0
        parts[-1].extend(torch.nonzero(batch.group == k).flatten().tolist())
        held += more
    return [p for p in parts if batch.offset[p[0]] < batch.offset[p[-1] + 1]]


def share(rows: list[Row], rank: int, world: int) -> list[Row | None]:
    """This rank's rows, balanced by tokens; every rank gets the same number, filled up with None."""
    load, mine = [0] * world, [[] for _ in range(world)]
    for k in sorted(range(len(rows)), key=lambda k: (-rows[k].ids.shape[1], k)):
        lightest = min(range(world), key=lambda r: (load[r], r))
        mine[lightest].append(k)
        load[lightest] += rows[k].ids.shape[1]
    width = max(len(m) for m in mine)
    chosen: list[Row | None] = [rows[k] for k in sorted(mine[rank])]
    return chosen + [None] * (width - len(chosen))
