"""R1-zero style: a base model without a chat template learns to think before it answers, from two rewards and no examples.

The prompt only describes the form, <think>…</think> <answer>…</answer>. One reward is for the right number, a smaller one for keeping
the form, so that there is something to learn before the first right answer. What is between the think tags is never judged.
"""

import re
from typing import Optional, Tuple

from addition import Addition, AdditionConfig
from atroposlib.envs.base import ScoredDataGroup
from pydantic import Field

TEMPLATE = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The Assistant first thinks "
    "about the reasoning in the mind and then gives the answer, as in <think>reasoning</think> <answer>number</answer>.\n"
    "User: What is {a}+{b}?\nAssistant: <think>"
)
FORM = re.compile(r"[^<]*</think>\s*<answer>\s*(-?\d+)\s*</answer>\s*", re.DOTALL)


class R1ZeroConfig(AdditionConfig):
    max_new_tokens: int = Field(default=96, description="Tokens of thinking and answer together")
    form_reward: float = Field(default=0.2, description="For keeping the form, right or wrong")


def score(text: str, pair: Tuple[int, int], form_reward: float) -> float:
    """The prompt has opened the thinking; the completion closes it, answers and ends."""
    found = FORM.match(text)
    if found is None:
        return 0.0
    return form_reward + (1.0 - form_reward) * float(int(found[1]) == sum(pair))


class R1Zero(Addition):
    name = "r1_zero"
    env_config_cls = R1ZeroConfig

    @classmethod
    def config_init(cls):
        config, servers = super().config_init()
        given = {**config.model_dump(exclude={"max_new_tokens"}), "wandb_name": "r1_zero", "max_token_length": 256}
        return R1ZeroConfig(**given), servers

    async def think(self, item, n: int, temperature: float, split: str):
        """n completions with their sequences; each text ends with the closing tag."""
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answers = await managed.completion(
                prompt=TEMPLATE.format(a=item[0], b=item[1]),
                n=n,
                max_tokens=self.config.max_new_tokens,
                temperature=temperature,
                stop=["</answer>"],
                split=split,
            )
            nodes = managed.get_state()["nodes"]
        # Whether a server includes the text that stopped it is its own matter.
        texts = [c.text if c.text.rstrip().endswith("</answer>") else c.text + "</answer>" for c in answers.choices]
        return texts, nodes

    async def greedy(self, pair) -> float:
        texts, _ = await self.think(pair, 1, 0.0, "eval")
        return float(score(texts[0], pair, self.config.form_reward) == 1)

    async def collect_trajectories(self, item) -> Tuple[Optional[ScoredDataGroup], list]:
        texts, nodes = await self.think(item, self.config.group_size, self.config.temperature, "train")
        scores = [score(text, item, self.config.form_reward) for text in texts]
        self.correct.extend(float(s == 1) for s in scores)
        group = ScoredDataGroup(
            tokens=[node.tokens for node in nodes],
            masks=[node.masked_tokens for node in nodes],
            inference_logprobs=[node.logprobs for node in nodes],
            scores=scores,
        )
        return group, []


if __name__ == "__main__":
    R1Zero.cli()
