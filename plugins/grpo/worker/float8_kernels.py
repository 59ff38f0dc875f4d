"""Rounding to float8 in one pass over what is rounded, in Triton. float8._rows and float8._transposed say what is
calculated; tests hold the kernels to them. Compiled from those, it takes twice as long, and four times for a transposed
weight (H100)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 32768  # numbers in a row that a program can hold
TILE = 64


@triton.jit
def _rows(x, factor, out, scales, columns: tl.constexpr, largest, smallest, FACTOR: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    if FACTOR:
        v = v * tl.load(factor + at, mask=inside, other=0.0)
    scale = tl.maximum(tl.max(tl.abs(v), 0), smallest) / largest
    tl.store(scales + row, scale)
    tl.store(out + row * columns + at, (v * (1.0 / scale)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _transposed(weight, scales, out, rows, columns, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    k = tl.program_id(1) * TILE + tl.arange(0, TILE)
    n, k = n.to(tl.int64), k.to(tl.int64)
    there = weight + n[:, None] * columns + k[None, :]
    v = tl.load(there, mask=(n < rows)[:, None] & (k < columns)[None, :], other=0.0).to(tl.float32)
    q = v * (1.0 / tl.load(scales + n, mask=n < rows, other=1.0))[:, None]
    turned = tl.trans(q.to(out.dtype.element_ty))
    tl.store(out + k[:, None] * rows + n[None, :], turned, mask=(k < columns)[:, None] & (n < rows)[None, :])


def rows(
    x: Tensor, factor: Tensor | None, dtype: torch.dtype, largest: float, smallest: float
) -> tuple[Tensor, Tensor]:
    """float8._rows of (n, k) numbers, contiguous, k at most LONGEST."""
    n, k = x.shape
    out, scales = torch.empty_like(x, dtype=dtype), x.new_empty(n, 1, dtype=torch.float32)
    block = triton.next_power_of_2(k)
    _rows[(n,)](
        x, scales if factor is None else factor.contiguous(), out, scales, k, largest, smallest,
        FACTOR=factor is not None, BLOCK=block, num_warps=min(max(block // 1024, 1), 16),
    )  # fmt: skip
    return out, scales


def transposed(weight: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """float8._transposed of (n, k) numbers."""
    n, k = weight.shape
    weight, out = weight.contiguous(), weight.new_empty(k, n, dtype=dtype)
    _transposed[(triton.cdiv(n, TILE), triton.cdiv(k, TILE))](weight, scales, out, n, k, TILE=TILE, num_warps=4)
    return out
