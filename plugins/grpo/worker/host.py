"""The CPU's side of training on a GPU: what keeps the device waiting."""

from __future__ import annotations

import gc

import torch


def settle(device: torch.device, threads: int) -> None:
    """To be called when model and compiled code are there, before the first step. threads: as configured, 0 = open.

    Beside a GPU the CPU only calculates vectors over a batch's tokens. With a thread for each core such an operation of
    5 ms took 0.4 s where another process used the cores as well (H200, 16 cores), because it ends with the last thread.
    What lives as long as the run need not be searched for garbage."""
    if device.type != "cuda":
        return
    if not threads:
        torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
