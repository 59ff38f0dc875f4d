"""What a block of a trainer on TRL's code has besides what all have."""

from __future__ import annotations

from dataclasses import dataclass

from ..fields import option
from ..settings import Settings


@dataclass(frozen=True)
class TRLSettings(Settings):
    """A block's settings."""

    old_policy: str = option("trainer", "What ratios are against: the trainer before the step, or the sampler.",
                             choices=("trainer", "rollout"))  # fmt: skip
