"""Does the device multiply right? Asked once, when a model is on it: of products of its sizes some numbers are
calculated a second time, without cuBLAS.

Seen on an H100 under NVIDIA's MPS with 40, 60, 73 and 80 % of the multiprocessors (driver 580, cuBLAS 13): parts of
many products were left out, and nothing said so. Some came out right beside them, others were not finite. With 50 % and
with all multiprocessors every product was right.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .errors import WorkerError

TOKENS = (64, 256, 4096)  # of a proof, of a few sequences, of a row
WIDEST = 32768  # a head's vocabulary is cut to so many: its random weights would be as large as the head
ASKED = 512  # numbers of each product that are compared
# Errors are measured in standard deviations of a product's numbers. Rounding to 16 bits is off by .016 at most in a
# number of four deviations; a number of which a part was left out is off by about one.
ALLOWED = 0.1

FORWARD, INPUT, WEIGHT = "output", "input's gradient", "weight's gradient"


@dataclass(frozen=True, order=True)
class Product:
    """One of a layer's: (rows, summed) by (summed, columns)."""

    kind: str
    rows: int
    summed: int
    columns: int


def product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """left @ right, not rounded to the precision of the factors on its way to a wider one where a GPU can do that."""
    if left.is_cuda and dtype == torch.float32 and left.dtype != torch.float32 and WIDE_PRODUCT:
        return torch.mm(left, right, out_dtype=torch.float32)
    return (left @ right).to(dtype)


WIDE_PRODUCT = hasattr(torch.ops.aten.mm, "dtype")  # from torch 2.8 on


def check(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Raises WorkerError when a GPU multiplies wrong what a model's linear layers do, forward and backward. CPUs are
    trusted: it would take them seconds."""
    if device.type == "cuda":
        compare(model, device, dtype)


def compare(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """`check` on any device."""
    generator = torch.Generator(device).manual_seed(0)
    asked = sorted({p for layer in _layers(model) for p in _of(*layer)})
    off = torch.stack([_error(p, generator, dtype) for p in asked]).tolist() if asked else []
    wrong = [(p, x) for p, x in zip(asked, off, strict=True) if not x <= ALLOWED]  # also what is not a number
    if wrong:
        raise WorkerError(_what(wrong, len(asked), dtype), _why(), "products")


def _layers(model: nn.Module) -> set[tuple[int, int]]:
    """(in, out) of its linear layers, adapters among them."""
    found = (m for m in model.modules() if isinstance(m, nn.Linear))
    return {(m.in_features, min(m.out_features, WIDEST)) for m in found}


def _of(inner: int, outer: int) -> Iterator[Product]:
    """What a layer multiplies."""
    for tokens in TOKENS:
        yield Product(FORWARD, tokens, inner, outer)
        yield Product(INPUT, tokens, outer, inner)
        yield Product(WEIGHT, outer, tokens, inner)


def _error(p: Product, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """The largest error of a product of normal random numbers, in standard deviations of the right ones. Its factors
    lie in memory as a layer's do, which decides between kernels."""
    drawn: dict[str, Any] = {"generator": generator, "device": generator.device}
    if p.kind == WEIGHT:
        left = torch.randn(p.summed, p.rows, dtype=dtype, **drawn).t()
    else:
        left = torch.randn(p.rows, p.summed, dtype=dtype, **drawn)
    if p.kind == FORWARD:
        right = torch.randn(p.columns, p.summed, dtype=dtype, **drawn).t()
    else:
        right = torch.randn(p.summed, p.columns, dtype=dtype, **drawn)
    row, column = torch.randint(p.rows, (ASKED,), **drawn), torch.randint(p.columns, (ASKED,), **drawn)
    exact = (left[row].double() * right.t()[column].double()).sum(-1)
    found = [left @ right]
    if p.kind == WEIGHT:  # an adapter's is in float32
        found.append(product(left, right, torch.float32))
    worst: Tensor = torch.stack([(f[row, column] - exact).abs().max() for f in found]).max() / p.summed**0.5
    return worst


def _what(wrong: list[tuple[Product, float]], asked: int, dtype: torch.dtype) -> str:
    p, off = max(wrong, key=lambda w: (math.isnan(w[1]), w[1]))
    return (
        f"this device multiplies wrong: {len(wrong)} of {asked} products of the model's sizes in "
        f"{str(dtype).removeprefix('torch.')}, among them a layer's for its {p.kind}, ({p.rows}, {p.summed}) by "
        f"({p.summed}, {p.columns}), whose numbers are off by {off:.2g} standard deviations ({ALLOWED:g} allowed)"
    )


def _why() -> list[str]:
    share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    here = f" Here CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is {share}." if share else ""
    return [
        "Does NVIDIA's MPS give this process a share of the GPU's multiprocessors (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, "
        "set_default_active_thread_percentage, GPUs shared by a cluster's device plugin)? cuBLAS was seen to leave out "
        f"parts of products then: give it all of them.{here}",
        "Does the GPU calculate wrong? Look for ECC or Xid errors (nvidia-smi -q, dmesg).",
    ]
