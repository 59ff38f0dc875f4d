"""Attention over packed rows: each token sees only its own sequence's past."""

from __future__ import annotations

import importlib.util
import inspect

import torch


def _grouped() -> bool:
    """Whether torch's kernel takes fewer heads of keys and values than of queries (from 2.12 on)."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return False
    return "enable_gqa" in inspect.signature(varlen_attn).parameters


GROUPED = _grouped()


def _varlen(module, query, key, value, attention_mask, scaling=None, dropout=0.0, sliding_window=None, **kwargs):
    """transformers' attention interface over torch's variable-length kernel; query (1, heads, T, D)."""
    from torch.nn.attention.varlen import varlen_attn

    bounds, longest = kwargs["cu_seq_lens_q"], kwargs["max_length_q"]
    # under autocast the rotary embedding leaves queries and keys in float32, which the kernel refuses
    q, k, v = (t.transpose(1, 2).squeeze(0).to(value.dtype) for t in (query, key, value))
    repeat, more = q.shape[1] // k.shape[1], {}
    if repeat > 1 and GROUPED:
        more["enable_gqa"] = True
    elif repeat > 1:
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    window = (sliding_window - 1, 0) if sliding_window else (-1, 0)
    out = varlen_attn(q, k, v, bounds, bounds, longest, longest, scale=scaling, window_size=window, **more)
    return out.unsqueeze(0), None


def register() -> None:
    """Makes "varlen" known to transformers."""
    from transformers import AttentionInterface

    AttentionInterface.register("varlen", _varlen)


def choose(wanted: str, device: torch.device, dtype: torch.dtype, softcap: bool) -> tuple[str, str]:
    """(implementation, why) for attention="auto" or a fixed wish."""
    if wanted != "auto":
        return wanted, "as configured"
    if device.type != "cuda":
        return "sdpa", "block-diagonal mask: variable-length kernels need a GPU"
    if dtype not in (torch.float16, torch.bfloat16):
        return "sdpa", f"block-diagonal mask: variable-length kernels need 16-bit arithmetic, this is {dtype}"
    if importlib.util.find_spec("flash_attn"):
        return "flash_attention_2", "flash-attn is installed"
    if not softcap and importlib.util.find_spec("torch.nn.attention.varlen"):
        return "varlen", "torch's variable-length kernel"
    return "sdpa", "block-diagonal mask: no variable-length kernel here"


def arguments(implementation: str, row) -> dict:
    """What the kernel needs besides position_ids. sdpa and eager get their block-diagonal mask from transformers,
    which sees the restarts in position_ids."""
    if implementation in ("varlen", "flash_attention_2"):
        b = row.boundaries
        return {"cu_seq_lens_q": b, "cu_seq_lens_k": b, "max_length_q": row.longest, "max_length_k": row.longest}
    return {}
