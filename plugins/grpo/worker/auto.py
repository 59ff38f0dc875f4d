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
SHORT = 8192  # tokens of a row: shorter ones are over before the CPU has launched the next one's kernels,
BUSY = 4e11  # unless there are so many tokens times weights in a layer
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
    attention: int  # width of queries, keys, values and of what attention has found, together


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
    attention: bool = True  # what attention has found can be kept where activations are recomputed; compiled, products


@dataclass(frozen=True)
class Choice:
    """How a step runs, and why. needed: estimated bytes beyond the weights."""

    compile: bool
    recomputed: int  # layers, the first ones, whose activations are calculated again in the backward pass
    attention_kept: bool  # of these, what attention has found is kept
    products_only: bool  # of the others, products are kept, and what lies between them is recomputed
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


def activations(
    s: Shape, x: Settings, recomputed: int, attention: bool, compiled: bool, row: int, products: bool = False
) -> float:
    """Bytes that a row's forward pass keeps for its backward pass. recomputed: layers that keep their input only, and,
    where attention says so, its output; products: the others keep their products only."""
    width = WIDTH[x.compute_dtype]
    # compiled, what silu makes of the gate is calculated again instead of kept
    layer = (8 * s.hidden + 3 * s.ffn if compiled else 1.1 * (8 * s.hidden + 4 * s.ffn)) * width
    if products:
        layer = s.hidden * WIDTH[x.dtype] + (s.hidden + s.attention + 2 * s.ffn) * width
    kept = max(s.layers - recomputed, 1)  # where all are recomputed, one is at a time
    casts = s.parameters * width * (s.layers - recomputed) / s.layers if x.dtype != x.compute_dtype else 0
    each = s.hidden * (WIDTH[x.dtype] + width * attention)
    return row * (recomputed * each + kept * layer) + casts * (not products)


def between_products(s: Shape, x: Settings, row: int) -> float:
    """Bytes that a layer which keeps its products only calculates again in its backward pass, its weights in the
    arithmetic's precision included. When they come, the head's are gone."""
    one = replace(s, layers=1, parameters=s.parameters // s.layers)
    few, whole = (activations(one, x, 0, False, True, row, products) for products in (True, False))
    return whole - few


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


def needed(s: Shape, x: Settings, m: Machine, compiled: bool, way: tuple[int, bool, bool, int, int]) -> float:
    """Bytes beside the weights that a candidate takes."""
    recomputed, attention, products, row, chunk = way
    longest = max(row, m.longest)
    then = head(s, x, compiled, chunk)
    if products:
        then = max(then, between_products(s, x, longest))
    return m.fixed + activations(s, x, recomputed, attention, compiled, longest, products) + then


def candidates(s: Shape, x: Settings, m: Machine, compiled: bool) -> list[tuple[int, bool, bool, int, int]]:
    """(recomputed layers, attention kept, products only, row, chunk) from the fastest to the smallest. Rows get smaller
    first, as long as they keep a GPU busy. Then what lies between products is recomputed, which costs a hundredth or
    two, as half a row does; then whole layers, which costs a quarter of the speed where it is all: up to a quarter of
    them, no more than must be, before rows get smaller again, and so on. Rows that are too short for a GPU come last.
    """
    layers = s.layers
    most = m.batch_tokens or ROWS[0]
    least = max(m.longest, 1)
    rows = [r for r in ROWS if r >= least and (r < 2 * most or r == ROWS[-1])] or [max(least, 1)]
    if x.row_tokens is not None:
        rows = [x.row_tokens]
    chunks = CHUNKS if x.head_chunk is None else (x.head_chunk,)
    if x.gradient_checkpointing is not None:
        return [(layers * x.gradient_checkpointing, False, False, row, chunk) for row in rows for chunk in chunks]
    busy = not compiled or SHORT // 2 * s.parameters >= BUSY * layers
    plain = [r for r in rows if r >= (SHORT // 2 if busy else SHORT)] or rows[:1]
    keep = m.attention and m.longest >= LONG
    few = compiled and m.attention
    out = [(0, False, products, row, chunk) for products in ((False, True) if few else (False,)) for row in plain
           for chunk in chunks]  # fmt: skip
    for quarter in range(QUARTERS):
        last = quarter == QUARTERS - 1
        some = range(layers * quarter // QUARTERS + 1, layers * (quarter + 1) // QUARTERS + 1)
        # all but one would take as much as all, of which one is recomputed at a time
        some = [n for n in some if n == layers or (n != layers - 1 and m.by_layer)]
        out += [(n, keep, few and n < layers, row, chunk) for row in (rows if last else plain) for chunk in chunks
                for n in some]  # fmt: skip
    return out + [(layers, False, False, row, chunk) for row in rows for chunk in chunks if keep]


def choose(s: Shape, x: Settings, m: Machine, below: Choice | None = None) -> Choice:
    """The first candidate that fits into the free memory, else the smallest. below: one that has run out of memory;
    only candidates that need a good deal less are looked at, and where there is none, the smallest."""
    compiled = m.compiler if x.compile is None else x.compile
    fits: Callable[[float], bool] = lambda n: n <= USABLE * m.free  # noqa: E731
    found: tuple[tuple[int, bool, bool, int, int], float] | None = None
    for way in candidates(s, x, m, compiled):
        takes = needed(s, x, m, compiled, way)
        if below is not None and not takes < below.needed:
            continue
        if found is None or takes < found[-1]:
            found = way, takes
        if fits(takes) and (below is None or takes <= STEP_DOWN * below.needed):
            found = way, takes
            break
    if found is None:
        assert below is not None  # there is always a candidate
        return replace(below, reason="")
    (recomputed, attention, products, row, chunk), takes = found
    reason = (
        f"activations {_kept(recomputed, s.layers, attention, products)}, rows of {row} tokens, chunks of {chunk}, "
        f"{'compiled' if compiled else 'not compiled'}: about {takes / GIB:.1f} GiB beside the weights, "
        f"{m.free / GIB:.1f} GiB are free"
    )
    if below is not None:
        reason = f"out of memory with rows of {below.row_tokens} tokens; now {reason}"
    elif not fits(takes):
        reason += ", so it may run out of memory"
    return Choice(compiled, recomputed, attention, products, row, chunk, takes, reason)


def _kept(recomputed: int, layers: int, attention: bool, products: bool) -> str:
    but = " but for attention" if attention else ""
    if 0 < recomputed < layers:
        return f"of {recomputed} of {layers} layers recomputed{but}{', of the others but for products' * products}"
    return f"recomputed{' but for products' * products or but}" if recomputed or products else "kept"


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
    heads = getattr(config, "num_attention_heads", None) or 1
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    attention = 2 * width * (heads + (getattr(config, "num_key_value_heads", None) or heads))
    return Shape(parameters, trained, config.num_hidden_layers, config.hidden_size, inner, config.vocab_size, attention)
