"""Precisions by the names that settings and messages use."""

from __future__ import annotations

import torch

DTYPES = {n: getattr(torch, n) for n in ("float32", "bfloat16", "float16", "float64")}


def name(dtype: torch.dtype) -> str:
    """ "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")
