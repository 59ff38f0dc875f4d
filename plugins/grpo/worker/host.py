"""The CPU's side of training on a GPU: what keeps the device waiting."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import torch

CGROUP = "sys/fs/cgroup"


def available(root: str = "/") -> float:
    """Bytes of host memory that can still be had: what Linux can free, within the container's limit."""
    meminfo, group = Path(root, "proc/meminfo"), Path(root, CGROUP)
    if not meminfo.exists():
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / 2
    lines = (line.split() for line in meminfo.read_text().splitlines())
    free = float(next((int(x[1]) << 10 for x in lines if x[0] == "MemAvailable:"), 0))
    try:
        limit = (group / "memory.max").read_text().strip()
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        again = int(stat["file"]) - int(stat["shmem"])  # of files, which can be read again
        used = int((group / "memory.current").read_text()) - again
    except (OSError, ValueError, KeyError):
        return free
    return free if limit == "max" else min(free, max(0.0, float(limit) - used))


def calm(device: torch.device, threads: int) -> None:
    """Before anything is compiled, because compiled code is made anew when the number of threads changes. threads: as
    configured, 0 = open.

    Beside a GPU the CPU only calculates vectors over a batch's tokens. With a thread for each core such an operation of
    5 ms took 0.4 s where another process used the cores as well (H200, 16 cores), because it ends with the last thread.
    """
    if device.type == "cuda" and not threads:
        torch.set_num_threads(1)


def settle(device: torch.device) -> None:
    """When model and compiled code are there: what lives as long as the run need not be searched for garbage."""
    if device.type == "cuda":
        gc.collect()
        gc.freeze()
