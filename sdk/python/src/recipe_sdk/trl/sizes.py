"""How a batch of the block is cut into TRL's micro-batches and optimizer steps."""

from __future__ import annotations

from typing import NamedTuple

from ..fields import ConfigError


class Sizes(NamedTuple):
    """TRL's settings of the same names; per_batch counts optimizer steps."""

    per_device_train_batch_size: int
    steps_per_generation: int
    gradient_accumulation_steps: int
    num_generations: int
    per_batch: int


def sizes(batch_size: int, world: int, per_device: int, accumulate: int | None = None, iterations: int = 1) -> Sizes:
    """per_device: sequences of a micro-batch. accumulate: micro-batches of an optimizer step; None: all of a batch, so
    that a batch is one step. iterations: passes over a batch. ConfigError when steps do not fill a batch."""
    if batch_size < 2:
        raise ConfigError(f"batch_size: TRL compares at least two sequences, got {batch_size}")
    steps = -(-batch_size // (world * per_device))
    accumulate = accumulate or steps
    if steps * iterations % accumulate:
        raise ConfigError(
            f"gradient_accumulation_steps: a batch of {batch_size} sequences is {steps} micro-batches of {per_device} "
            f"on {world} rank(s), {iterations} time(s); {accumulate} does not divide {steps * iterations}"
        )
    # TRL groups rewards by it. Here environments do that; it only must divide the batch, Axolotl says that of a rank.
    whole = per_device * steps if per_device * steps > 1 else world
    group = next(n for n in range(2, whole + 1) if whole % n == 0) if whole > 1 else 2
    return Sizes(per_device, steps, accumulate, group, steps * iterations // accumulate)
