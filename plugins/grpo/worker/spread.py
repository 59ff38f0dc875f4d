"""Several GPUs: the whole model on each, or a shard.

With the whole model on each GPU weights need no transfer, and gradients one a step, when they are complete. Shards
(FSDP2) are gathered layer by layer beside the arithmetic, from which transfers take multiprocessors: on two H100 a step
of 1.5 billion parameters takes 3 to 6 % longer. So models are sharded only where memory demands it.
"""

from __future__ import annotations

from typing import Any

import torch
from recipe_sdk.errors import WorkerError
from recipe_sdk.ranks import Ranks

from . import auto, compiled, recompute
from .config import Config, source_of
from .model import Policy, shard
from .sizing import free_memory, settings


def put(policy: Policy, c: Config, ranks: Ranks) -> tuple[Any, str]:
    """Puts a policy that lies in host memory on the devices: whole on each, or its shards, layer by layer, so that no
    device need hold more. The mesh over which it is sharded, for a reference as well (None: whole), and why."""
    mesh, why = _mesh_for(policy, c, ranks)
    if mesh is None:
        policy.model.to(ranks.device)
    else:
        shard(policy, c, mesh)
    return mesh, why


def _mesh_for(policy: Policy, c: Config, ranks: Ranks) -> tuple[Any, str]:
    if ranks.mesh is None:
        return None, ""
    fits, free = whole_fits(policy, c, ranks)
    whole = fits if c.model.replicate is None else c.model.replicate
    why = f"{free / auto.GIB:.1f} GiB are free" if c.model.replicate is None else "as configured"
    if whole:
        return None, f"the whole model on each of {ranks.world} devices: {why}"
    return ranks.mesh, f"a shard of the model on each of {ranks.world} devices: {why}"


def whole_fits(policy: Policy, c: Config, ranks: Ranks) -> tuple[bool, float]:
    """Whether rows of the whole model can be as good as those of a shard; bytes that were free if no part of it were on
    the device."""
    x, cuda = settings(c, ranks.device), ranks.device.type == "cuda"
    total = sum(p.numel() for p in policy.parameters())
    trained = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    here = sum(p.nbytes for p in policy.parameters() if p.device.type == ranks.device.type)
    everywhere = ranks.gather((free_memory(ranks.device) + here, not compiled.unavailable(ranks.device)))
    free = min(f for f, _ in everywhere)
    weights = total * auto.WIDTH[x.dtype]
    copied = (source_of(c) == "copy" and not c.reference.offload) * weights

    def machine(share: int) -> auto.Machine:
        shape = shape_of(share)
        # adapters are whole everywhere
        fixed = auto.fixed(shape, x, c.optimizer.name, bool(c.lora.rank), c.optimizer.offload and cuda)
        room = free - weights / share
        compiler = all(k for _, k in everywhere)
        return auto.Machine(
            room, compiler, c.data.max_length, 0, fixed + copied / share, recompute.by_layer(policy.backbone),
            policy.implementation == "varlen",
        )  # fmt: skip

    def shape_of(share: int) -> auto.Shape:
        return auto.shape_of(policy.causal.config, total // share, trained if policy.adapted else trained // share)

    if c.optimizer.offload and cuda:  # the host's memory would hold all moments once for each rank
        return False, free
    whole, part = (auto.choose(shape_of(n), x, machine(n)) for n in (1, ranks.world))
    good = auto.as_good(whole, part, policy.causal.config.num_hidden_layers)
    return good and whole.needed <= auto.USABLE * (free - weights), free


@torch.no_grad()
def check_equal(policy: Policy, ranks: Ranks) -> None:
    """Raises when whole models have come apart, which no metric of a step would show: every rank makes the same step of
    the same gradients."""
    if ranks.world == 1 or policy.sharded:
        return
    trained = [p for p in policy.parameters() if p.requires_grad]
    norms = torch.stack(torch._foreach_norm(trained, 2, torch.float64)).tolist()
    everywhere = ranks.gather(norms)
    other = next((k for k, x in enumerate(everywhere) if str(x) != str(everywhere[0])), None)
    if other is not None:
        raise WorkerError(
            f"rank {other} holds other weights than rank 0, though both have made the same steps",
            ["Does one of the GPUs calculate wrong? Look for ECC or Xid errors (nvidia-smi -q, dmesg).",
             "Go on from an older checkpoint: this one is not written. Or set compute { replicate = false }."],
        )  # fmt: skip
