"""The processes that train together. With one process everything here is free of communication."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

FILE = "RECIPE_RANKS_FILE"  # of the trainer's plugin: where the ranks of one machine find each other


def default_device() -> torch.device:
    """CUDA device LOCAL_RANK, or the CPU on a machine without one."""
    local = int(os.environ.get("LOCAL_RANK", 0))
    return torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")


def pieces(tensors: list[Tensor], most: int) -> Iterator[list[Tensor]]:
    """The tensors in their order, as many at a time as take `most` bytes and have one precision; at least one."""
    now: list[Tensor] = []
    size = 0
    for x in tensors:
        if now and (x.dtype != now[0].dtype or size + x.nbytes > most):
            yield now
            now, size = [], 0
        now.append(x)
        size += x.nbytes
    if now:
        yield now


def join(backend: str, timeout: timedelta) -> None:
    """Makes the process group of torchrun's ranks. On one machine they find each other in a file of this user: every
    user can read and write a store on TCP, and ranks unpickle what they take for another rank's."""
    import torch.distributed as dist

    path = os.environ.get(FILE)
    ranks: dict[str, Any] = {}
    if path:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = dist.FileStore(path, world)  # type: ignore[attr-defined]
        store.set_timeout(timeout)
        ranks = {"store": store, "rank": rank, "world_size": world}
    dist.init_process_group(backend, timeout=timeout, **ranks)


def alone(backend: str, timeout: timedelta) -> None:
    """Makes the process group of one process. verl needs one, and so does DeepSpeed, which looks for MPI otherwise. The
    store is in this process: other users cannot reach it."""
    import torch.distributed as dist

    dist.init_process_group(backend, timeout=timeout, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]


class Ranks:
    """This process's place among `world` processes started by torchrun."""

    def __init__(self, device: torch.device, timeout_s: float = 1800.0):
        self.rank = int(os.environ.get("RANK", 0))
        self.world = int(os.environ.get("WORLD_SIZE", 1))
        self.device = device
        self.mesh: Any = None
        self.objects: Any = None
        self.own = False  # whether the process group was made here
        if self.world == 1:
            return
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        timeout = timedelta(seconds=timeout_s)
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.set_device(self.device)
        if not dist.is_initialized():
            self.own = True
            join("nccl" if cuda else "gloo", timeout)
        self.mesh = init_device_mesh(self.device.type, (self.world,))
        # Commands and batches travel over gloo: a rank that waits for work must not spin on the GPU.
        self.objects = dist.new_group(backend="gloo", timeout=timeout) if cuda else dist.group.WORLD

    @property
    def main(self) -> bool:
        """Whether this is rank 0, the one that talks to the outside."""
        return self.rank == 0

    def share(self, value: Any) -> Any:
        """Rank 0's value on every rank."""
        if self.world == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.objects)
        return box[0]

    def agree(self, action: Callable[[], Any]) -> None:
        """Runs something that only some ranks may fail at; every rank raises what the first of them raised."""
        problem: Exception | None = None
        try:
            action()
        except Exception as e:
            problem = e
        for found in self.gather(problem):
            if found is not None:
                raise found

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, on every rank."""
        if self.world == 1:
            return [value]
        import torch.distributed as dist

        out: list[Any] = [None] * self.world
        dist.all_gather_object(out, value, group=self.objects)
        return out

    def sum(self, x: Tensor) -> Tensor:
        """Element-wise sum over ranks (in place where possible)."""
        if self.world > 1:
            import torch.distributed as dist

            dist.all_reduce(x)
        return x

    def sum_by_host(self, x: Tensor) -> Tensor:
        """As sum, exchanged by the hosts: it does not queue behind what devices exchange. x stays as it is."""
        return self._by_host(x, "SUM")

    def max_by_host(self, x: Tensor) -> Tensor:
        """As max, exchanged by the hosts. x stays as it is."""
        return self._by_host(x, "MAX")

    def _by_host(self, x: Tensor, how: str) -> Tensor:
        if self.world == 1:
            return x
        import torch.distributed as dist

        here = x.cpu() if x.device.type != "cpu" else x.clone()
        dist.all_reduce(here, op=getattr(dist.ReduceOp, how), group=self.objects)
        return here.to(x.device)

    def mean(self, tensors: list[Tensor], most: int = 256 << 20) -> None:
        """Makes each of these its element-wise mean over ranks, in place. most: bytes that travel at a time."""
        if self.world == 1:
            return
        import torch.distributed as dist

        cuda = self.device.type == "cuda"
        how = dist.ReduceOp.AVG if cuda else dist.ReduceOp.SUM  # gloo cannot divide
        under_way: list[tuple[Any, Tensor, list[Tensor]]] = []

        def arrive() -> None:
            work, whole, members = under_way.pop(0)
            work.wait()
            parts = (whole if cuda else whole.div_(self.world)).split([x.numel() for x in members])
            torch._foreach_copy_(members, [p.view_as(x) for p, x in zip(parts, members, strict=True)])

        for members in pieces(tensors, most):
            whole = torch.cat([x.flatten() for x in members])
            under_way.append((dist.all_reduce(whole, op=how, async_op=True), whole, members))
            if len(under_way) > 1:
                arrive()
        while under_way:
            arrive()

    def max(self, x: Tensor) -> Tensor:
        """Element-wise maximum over ranks (in place where possible)."""
        if self.world > 1:
            import torch.distributed as dist

            dist.all_reduce(x, op=dist.ReduceOp.MAX)
        return x

    def close(self) -> None:
        """Ends the process group, if it was made here."""
        if self.own:
            import torch.distributed as dist

            if dist.is_initialized():
                dist.destroy_process_group()
