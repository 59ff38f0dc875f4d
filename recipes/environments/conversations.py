"""What environments of several turns share: a group is several conversations about one item, side by side."""

import asyncio
import time
from typing import Optional, Tuple

from atroposlib.envs.base import ScoredDataGroup


def carry(before, node):
    """The sequence of this turn, with the trained tokens of earlier turns. atroposlib 0.4 keeps those for chat
    completions only: after a plain completion it would mask all turns but the last, without a warning."""
    if before is not None:
        n = len(before.tokens)
        if node.tokens[:n] != before.tokens:
            raise ValueError("a turn does not continue the tokens of the one before it")
        node.masked_tokens[:n], node.logprobs[:n] = before.masked_tokens, before.logprobs
    return node


class Conversations:
    """Mixed into an environment with `conversation(item, temperature, split)`, which returns one rollout: its sequence,
    score and a count, and `held_out()`, the items of an evaluation. `counted` names the count."""

    counted = "turns"

    async def collect_trajectories(self, item) -> Tuple[Optional[ScoredDataGroup], list]:
        rollouts = await asyncio.gather(
            *(self.conversation(item, self.config.temperature) for _ in range(self.config.group_size))
        )
        self.correct.extend(score for _, score, _ in rollouts)
        group = ScoredDataGroup(
            tokens=[node.tokens for node, _, _ in rollouts],
            masks=[node.masked_tokens for node, _, _ in rollouts],
            inference_logprobs=[node.logprobs for node, _, _ in rollouts],
            scores=[score for _, score, _ in rollouts],
        )
        return group, []

    async def evaluate(self, *args, **kwargs):
        started = time.time()
        temperature = self.config.eval_temperature
        rollouts = await asyncio.gather(*(self.conversation(item, temperature, "eval") for item in self.held_out()))
        count = max(1, len(rollouts))
        await self.evaluate_log(
            metrics={
                "eval/score": sum(score for _, score, _ in rollouts) / count,
                f"eval/{self.counted}": sum(n for _, _, n in rollouts) / count,
            },
            start_time=started,
            end_time=time.time(),
            generation_parameters={"temperature": temperature, "max_new_tokens": self.config.max_new_tokens},
        )
