"""The CPU's side of training on a GPU: what keeps the device waiting."""

from __future__ import annotations

import gc

import torch


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
