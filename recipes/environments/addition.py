"""One-digit addition as an Atropos environment: small enough for a CPU, honest enough to show learning.

A plain atroposlib environment that knows nothing of recipe; copy it to start your own. The hundred pairs of digits are
split once, by a fixed seed, into 70 for training and 30 that are only evaluated. Reward is 1 when the answer begins
with the right number. `shuffle_rewards` is the control: the same scores, dealt out at random within each group, so that
there is nothing to learn.
"""

import random
import re
import time
from typing import List, Optional, Tuple

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
from pydantic import Field

PAIRS = [(a, b) for a in range(10) for b in range(10)]
random.Random(1234).shuffle(PAIRS)
HELD_OUT, TRAIN = PAIRS[:30], PAIRS[30:]


def prompt(pair: Tuple[int, int]) -> str:
    return f"What is {pair[0]}+{pair[1]}? Answer: "


def reward(text: str, pair: Tuple[int, int]) -> float:
    found = re.match(r"\s*(\d+)", text)
    return float(found is not None and int(found[1]) == sum(pair))


class AdditionConfig(BaseEnvConfig):
    max_new_tokens: int = Field(default=4, description="Tokens of one answer")
    temperature: float = Field(default=1.0, description="Temperature of rollouts; evaluation is greedy")
    seed: int = Field(default=0, description="Order in which pairs are drawn")
    shuffle_rewards: bool = Field(default=False, description="Control: deal the scores of a group out at random")


class Addition(BaseEnv):
    name = "addition"
    env_config_cls = AdditionConfig

    @classmethod
    def config_init(cls) -> Tuple[AdditionConfig, List[APIServerConfig]]:
        config = AdditionConfig(
            group_size=8,
            use_wandb=False,
            max_token_length=64,
            steps_per_eval=0,
            wandb_name="addition",
        )
        server = APIServerConfig(model_name="policy", base_url="http://localhost:9001/v1", server_type="vllm")
        return config, [server]

    async def setup(self):
        self.random = random.Random(self.config.seed)
        self.correct: List[float] = []

    async def get_next_item(self) -> Tuple[int, int]:
        return self.random.choice(TRAIN)

    async def collect_trajectories(self, item) -> Tuple[Optional[ScoredDataGroup], list]:
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answers = await managed.completion(
                prompt=prompt(item),
                n=self.config.group_size,
                max_tokens=self.config.max_new_tokens,
                temperature=self.config.temperature,
            )
            nodes = managed.get_state()["nodes"]
        scores = [reward(choice.text, item) for choice in answers.choices]
        self.correct.extend(scores)
        if self.config.shuffle_rewards:
            self.random.shuffle(scores)
        group = ScoredDataGroup(
            tokens=[node.tokens for node in nodes],
            masks=[node.masked_tokens for node in nodes],
            inference_logprobs=[node.logprobs for node in nodes],
            scores=scores,
        )
        return group, []

    async def greedy(self, pair) -> float:
        """Score of one greedy answer."""
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answer = await managed.completion(
                prompt=prompt(pair),
                n=1,
                max_tokens=self.config.max_new_tokens,
                temperature=0.0,
                split="eval",
            )
        return reward(answer.choices[0].text, pair)

    async def evaluate(self, *args, **kwargs):
        started = time.time()
        correct = [await self.greedy(pair) for pair in HELD_OUT]
        await self.evaluate_log(
            metrics={"eval/held_out_accuracy": sum(correct) / len(correct)},
            start_time=started,
            end_time=time.time(),
            generation_parameters={"temperature": 0.0, "max_new_tokens": self.config.max_new_tokens},
        )

    async def wandb_log(self, wandb_metrics=None):
        metrics = wandb_metrics or {}
        if self.correct:
            metrics["train/percent_correct"] = sum(self.correct) / len(self.correct)
            self.correct = []
        await super().wandb_log(metrics)


if __name__ == "__main__":
    Addition.cli()
