"""What training remembers between steps besides weights and optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .config import Config
from .environment_advantages import Normalizer


@dataclass
class Memory:
    """Part of every checkpoint."""

    normalizer: Normalizer = field(default_factory=Normalizer)
    kl_reward: float | None = None  # adaptive coefficient of the KL in the reward
    entropy: float | None = None  # adaptive entropy coefficient
    entropy_seen: float | None = None

    def state(self) -> dict[str, Any]:
        """JSON for the checkpoint."""
        return {"normalizer": self.normalizer.state(), "kl_reward": self.kl_reward, "entropy": self.entropy,
                "entropy_seen": self.entropy_seen}  # fmt: skip

    @staticmethod
    def restore(state: dict[str, Any]) -> Memory:
        """The inverse of state."""
        return Memory(Normalizer(**state["normalizer"]), state["kl_reward"], state["entropy"], state["entropy_seen"])

    def entropy_coefficient(self, c: Config) -> float:
        """This step's coefficient of the entropy bonus: none above the target, when it adapts."""
        if not c.entropy.adaptive:
            return c.entropy.coefficient
        if (self.entropy_seen or 0.0) > c.entropy.target:
            return 0.0
        return c.entropy.coefficient if self.entropy is None else self.entropy

    def reward_coefficient(self, c: Config) -> float:
        """This step's coefficient of the KL in the reward."""
        if c.kl.adaptive_target and self.kl_reward is not None:
            return self.kl_reward
        return c.kl.reward_coefficient

    def adapt(self, c: Config, report: dict[str, Any], sequences: int) -> None:
        """Moves the adaptive coefficients for the next step."""
        if c.kl.adaptive_target and "kl/reward" in report:
            error = min(max(report["kl/reward"] / c.kl.adaptive_target - 1, -0.2), 0.2)
            self.kl_reward = report["kl/reward_coefficient"] * (1 + error * sequences / c.kl.adaptive_horizon)
        if c.entropy.adaptive:
            now = c.entropy.coefficient if self.entropy is None else self.entropy
            self.entropy_seen = report["entropy"]
            change = c.entropy.step if self.entropy_seen <= c.entropy.target else -c.entropy.step
            self.entropy = min(max(now + change, c.entropy.low), c.entropy.high)
