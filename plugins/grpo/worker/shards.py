"""Gradient norm and AdamW over the shards that a rank holds.

torch's own take every sharded tensor through DTensor's dispatcher: milliseconds of the CPU for a model's hundreds of
parameters, while the device waits. Names and state stay DTensors, so that checkpoints are torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from recipe_sdk.ranks import Ranks
from torch import Tensor
from torch.optim.adamw import adamw

from .offload import counter, local, sharded


@torch.no_grad()
def clip(parameters: Iterable[Tensor], most: float, ranks: Ranks) -> Tensor:
    """Scales gradients down to a norm of `most` over all ranks (0: any); the norm before, in float32 at least."""
    grads = [p.grad for p in parameters if p.grad is not None]
    spread, whole = [local(g) for g in grads if sharded(g)], [g for g in grads if not sharded(g)]
    total = torch.zeros((), device=ranks.device)
    if spread:
        total = total + ranks.sum(_squares(spread))
    if whole:
        total = total + _squares(whole)
    norm = total.sqrt()
    for parts in (spread, whole):
        if most and parts:
            torch._foreach_mul_(parts, (most / (norm + 1e-6)).clamp(max=1.0).to(parts[0].dtype))
    return norm


def _squares(parts: list[Tensor]) -> Tensor:
    wide = torch.float64 if parts[0].dtype == torch.float64 else torch.float32
    return torch.stack(torch._foreach_norm(parts, 2, wide)).square().sum()


class AdamW(torch.optim.AdamW):
    """torch's AdamW over parameters some or all of which are sharded."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As torch's."""
        with torch.enable_grad():
            result = None if closure is None else closure()
        for group in self.param_groups:
            due = [p for p in group["params"] if p.grad is not None]
            state = [self._begun(p, group) for p in due]
            adamw(
                [local(p) for p in due], [local(p.grad) for p in due], [local(s["exp_avg"]) for s in state],
                [local(s["exp_avg_sq"]) for s in state], [], [s["step"] for s in state], foreach=group["foreach"],
                capturable=group["capturable"], differentiable=group["differentiable"], fused=group["fused"],
                amsgrad=False, beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
                weight_decay=group["weight_decay"], eps=group["eps"], maximize=group["maximize"],
                found_inf=getattr(self, "found_inf", None),
            )  # fmt: skip
        return result

    def _begun(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """A parameter's state, as torch begins it."""
        state = self.state[p]
        if not state:
            state["step"] = counter(bool(group["fused"]), p.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        return state
