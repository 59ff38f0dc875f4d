"""What the unset settings of `model` become: precision, compile, checkpointing, tokens of a row, chunk of the head.

Pure functions over numbers: no torch, no device. The plan in Go decides by the same rules; testdata/auto.json holds
cases that both must answer alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

GIB = 1 << 30
ROWS = (32768, 16384, 8192, 4096, 2048, 1024)
CHUNKS = (4096, 1024)
LONG = 4096  # tokens of a sequence whose attention is worth more than the memory of its output
QUARTERS = 4  # parts of the layers: before the next part is recomputed, shorter rows are tried
STEP_DOWN = 0.75  # a way that ran out of memory is followed by one that needs at most this part of it
SHORTEST_BESIDE_WEIGHTS = 8192  # tokens of a row that makes room for whole weights
USABLE = 0.92  # of the free memory: the rest is for fragments and for what is not counted here
PIECE = 128 << 20  # bytes of each of AdamW's two moments in a piece that passes through the GPU (optimizer.offload)
BUFFERS = 3  # pieces that are on the GPU at once: one comes, one is used, one goes
WIDTH = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


@dataclass(frozen=True)
class Shape:
    """What of a model decides its memory."""

    parameters: int
    trained: int  # parameters that have a gradient
    layers: int
    hidden: int
    ffn: int  # width inside the MLP, that of all active experts together
    vocabulary: int


@dataclass(frozen=True)
class Settings:
    """The settings as given; None: to be decided. dtype and compute_dtype are decided already (`precision`)."""

    dtype: str
    compute_dtype: str
    compile: bool | None = None
    gradient_checkpointing: bool | None = None
    row_tokens: int | None = None
    head_chunk: int | None = None


@dataclass(frozen=True)
class Machine:
    """Where it runs. free: bytes that are left once the weights (and a reference) are loaded, before the first step."""

    free: float
    compiler: bool  # torch.compile works here
    longest: int = 0  # tokens of the longest sequence: no row can be shorter
    batch_tokens: int = 0  # of one rank's part of a batch, 0 = unknown: no row needs more
    fixed: float = 0.0  # bytes that come with the first step: gradients, optimizer state, published copy
    by_layer: bool = True  # some layers can be recomputed and others not
    attention: bool = True  # what attention has found can be kept where activations are recomputed


@dataclass(frozen=True)
class Choice:
    """How a step runs, and why. needed: estimated bytes beyond the weights."""

    compile: bool
    recomputed: int  # layers, the first ones, whose activations are calculated again in the backward pass
    attention_kept: bool  # of these, what attention has found is kept
    row_tokens: int
    head_chunk: int
    needed: float
    reason: str


def precision(dtype: str | None, compute: str | None, lora: bool, narrow: bool) -> tuple[str, str]:
    """(dtype, compute_dtype). narrow: the device calculates fast in bfloat16. Weights that train are kept in float32,
    where small updates are not rounded away; a frozen base stays in the precision of the arithmetic."""
    if dtype is not None:
        return dtype, compute or dtype
    compute = compute or ("bfloat16" if narrow else "float32")
    return (compute if lora else "float32"), compute


def activations(s: Shape, x: Settings, recomputed: int, attention: bool, compiled: bool, row: int) -> float:
    """Bytes that a row's forward pass keeps for its backward pass. recomputed: layers that keep their input only, and,
    where attention says so, its output."""
    width = WIDTH[x.compute_dtype]
    # compiled, the product of gate and up is calculated again instead of kept
    layer = (8 * s.hidden + 3 * s.ffn if compiled else 1.1 * (8 * s.hidden + 4 * s.ffn)) * width
    kept = max(s.layers - recomputed, 1)  # where all are recomputed, one is at a time
    casts = s.parameters * width * (s.layers - recomputed) / s.layers if x.dtype != x.compute_dtype else 0
    each = s.hidden * (WIDTH[x.dtype] + width * attention)
    return row * (recomputed * each + kept * layer) + casts


def head(s: Shape, x: Settings, compiled: bool, chunk: int) -> float:
    """Bytes of a chunk's logits and, where the head trains, of its gradient in float32."""
    width = WIDTH[x.compute_dtype]
    each = 2 * width if compiled else width + 12
    trains = s.trained == s.parameters
    return chunk * s.vocabulary * each + (s.vocabulary * s.hidden * (4 + width) if trains else 0)


def fixed(s: Shape, x: Settings, optimizer: str, published: bool, offload: bool = False) -> float:
    """Bytes that come with the first step and stay. published: inference reads a copy of the weights; offload: the
    moments are in the host's memory."""
    gradient = WIDTH[x.dtype] if s.trained == s.parameters else 4
    each = {"adamw": 2 * gradient, "adamw_8bit": 2, "adafactor": 0.1 * gradient, "sgd": 0}[optimizer]
    moments = s.trained * each
    if offload:
        moments = min(moments, 2 * BUFFERS * PIECE)
    return s.trained * gradient + moments + (s.parameters * WIDTH[x.dtype] if published else 0)


def candidates(x: Settings, m: Machine, layers: int) -> list[tuple[int, bool, int, int]]:
    """(recomputed layers, attention kept, row, chunk) from the fastest to the smallest: rows get smaller before
    activations are recomputed, which costs a quarter of the speed where it is all of them. Then up to a quarter of the
    layers is recomputed, no more of them than must be, before rows get smaller again."""
    most = m.batch_tokens or ROWS[0]
    least = max(m.longest, 1)
    rows = [r for r in ROWS if r >= least and (r < 2 * most or r == ROWS[-1])] or [max(least, 1)]
    if x.row_tokens is not None:
        rows = [x.row_tokens]
    chunks = CHUNKS if x.head_chunk is None else (x.head_chunk,)
    if x.gradient_checkpointing is not None:
        return [(layers * x.gradient_checkpointing, False, row, chunk) for row in rows for chunk in chunks]
    plain = [r for r in rows if r >= 4096] or rows[:1]
    keep = m.attention and m.longest >= LONG
    out = [(0, False, row, chunk) for row in plain for chunk in chunks]
    for quarter in range(QUARTERS):
        last = quarter == QUARTERS - 1
        some = range(layers * quarter // QUARTERS + 1, layers * (quarter + 1) // QUARTERS + 1)
        # all but one would take as much as all, of which one is recomputed at a time
        some = [n for n in some if n == layers or (n != layers - 1 and m.by_layer)]
        out += [(n, keep, row, chunk) for row in (rows if last else plain) for n in some for chunk in chunks]
    return out + [(layers, False, row, chunk) for row in rows for chunk in chunks if keep]


def choose(s: Shape, x: Settings, m: Machine, below: Choice | None = None) -> Choice:
    """The first candidate that fits into the free memory, else the smallest. below: one that has run out of memory;
    only candidates that need a good deal less are looked at, and where there is none, the smallest."""
    compiled = m.compiler if x.compile is None else x.compile
    fits: Callable[[float], bool] = lambda n: n <= USABLE * m.free  # noqa: E731
    found: tuple[int, bool, int, int, float] | None = None
    for recomputed, attention, row, chunk in candidates(x, m, s.layers):
        longest = max(row, m.longest)
        needed = m.fixed + activations(s, x, recomputed, attention, compiled, longest) + head(s, x, compiled, chunk)
        if below is not None and not needed < below.needed:
            continue
        if found is None or needed < found[-1]:
            found = recomputed, attention, row, chunk, needed
        if fits(needed) and (below is None or needed <= STEP_DOWN * below.needed):
            found = recomputed, attention, row, chunk, needed
            break
    if found is None:
        assert below is not None  # there is always a candidate
        return replace(below, reason="")
    recomputed, attention, row, chunk, needed = found
    reason = (
        f"activations {_kept(recomputed, s.layers, attention)}, rows of {row} tokens, chunks of {chunk}, "
        f"{'compiled' if compiled else 'not compiled'}: about {needed / GIB:.1f} GiB beside the weights, "
        f"{m.free / GIB:.1f} GiB are free"
    )
    if below is not None:
        reason = f"out of memory with rows of {below.row_tokens} tokens; now {reason}"
    elif not fits(needed):
        reason += ", so it may run out of memory"
    return Choice(compiled, recomputed, attention, row, chunk, needed, reason)


def _kept(recomputed: int, layers: int, attention: bool) -> str:
    but = " but for attention" if attention else ""
    if 0 < recomputed < layers:
        return f"of {recomputed} of {layers} layers recomputed{but}"
    return f"recomputed{but}" if recomputed else "kept"


def choose_sharded(s: Shape, x: Settings, m: Machine, world: int) -> tuple[Choice, bool, bool]:
    """The choice for one of several ranks, whose share is s; whether each has memory for all weights between its
    forward and its backward pass, and for all gradients beside them between its rows. That is worth shorter rows, not
    recomputation."""
    weights = world * s.parameters * WIDTH[x.compute_dtype]
    gradients = world * s.trained * WIDTH[x.dtype]
    given_back = choose(s, x, m)
    for more, whole in ((weights + gradients, True), (weights, False)):
        kept = choose(s, x, replace(m, fixed=m.fixed + more))
        if kept.needed <= USABLE * m.free and as_good(kept, given_back, s.layers):
            return kept, True, whole
    return given_back, False, False


def as_good(c: Choice, other: Choice, layers: int) -> bool:
    """Whether a step runs about as fast one way as the other, transfers left aside. An eighth of the layers recomputed
    costs 3 %."""
    return c.recomputed <= other.recomputed + layers // 8 and c.row_tokens >= min(
        SHORTEST_BESIDE_WEIGHTS, other.row_tokens
    )


def smaller(before: Choice, after: Choice) -> bool:
    """Whether a step down has found anything."""
    return bool(after.reason) and after.needed < before.needed


def shape_of(config: Any, parameters: int, trained: int) -> Shape:
    """The shape of a transformers configuration."""
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    experts = getattr(config, "num_experts_per_tok", None)
    if experts:
        inner = experts * (getattr(config, "moe_intermediate_size", None) or inner)
    return Shape(parameters, trained, config.num_hidden_layers, config.hidden_size, inner, config.vocab_size)
