"""Token-level advantages: an environment that says itself how good each token was, instead of one score for the whole
answer.

One-digit addition again. A score says only that an answer was right or wrong; here the tokens of the number get the
credit or the blame, and whatever is written after it gets a small penalty, so that answers learn to be right and to
stop. The trainer uses these advantages as they are (advantages { use_advantages = true }, its default); with
use_advantages = false it falls back to scores, and the difference between the two runs shows what the tokens'
advantages do.
"""

from typing import Optional, Tuple

from addition import Addition, AdditionConfig, prompt, reward
from atroposlib.envs.base import ScoredDataGroup
from pydantic import Field


class TokenAdvantagesConfig(AdditionConfig):
    right: float = Field(default=1.0, description="Advantage of the number's tokens in a right answer")
    wrong: float = Field(default=-1.0, description="The same in a wrong one")
    chatter: float = Field(default=-0.2, description="Advantage of each token after the number")


class TokenAdvantages(Addition):
    name = "token_advantages"
    env_config_cls = TokenAdvantagesConfig

    @classmethod
    def config_init(cls):
        config, servers = super().config_init()
        values = {**config.model_dump(), "wandb_name": "token_advantages"}
        return TokenAdvantagesConfig(**values), servers

    def advantages(self, node, score: float) -> list:
        """One number per token, 0 on the prompt: the list is as long as the tokens."""
        out, inside = [], True
        for token, mask in zip(node.tokens, node.masked_tokens):
            if mask == -100:
                out.append(0.0)
                continue
            text = self.tokenizer.decode([token])
            inside = inside and (text.strip().isdigit() or not text.strip())
            out.append((self.config.right if score > 0 else self.config.wrong) if inside else self.config.chatter)
        return out

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
        group = ScoredDataGroup(
            tokens=[node.tokens for node in nodes],
            masks=[node.masked_tokens for node in nodes],
            inference_logprobs=[node.logprobs for node in nodes],
            scores=scores,
            advantages=[self.advantages(node, score) for node, score in zip(nodes, scores)],
        )
        return group, []


if __name__ == "__main__":
    TokenAdvantages.cli()
