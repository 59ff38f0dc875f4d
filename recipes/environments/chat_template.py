"""A chat template of the environment's own: for a base model without one, or to train on another form of conversation.

The environment renders conversations itself and sends token ids, so the template belongs to its tokenizer: it is set
once, in setup(). The server's template (chat_template of the inference block) plays no part in rollouts; give the
server the same one when people or judges talk to it, and whoever serves the checkpoint later, too: the trainer saves
the tokenizer of the model as it was.
"""

from typing import Optional, Tuple

from addition import Addition, AdditionConfig, reward
from atroposlib.envs.base import ScoredDataGroup
from pydantic import Field

PLAIN = (
    "{% for m in messages %}{{ m['role'] | upper }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT: {% endif %}"
)


class ChatTemplateConfig(AdditionConfig):
    chat_template: str = Field(default=PLAIN, description="Jinja chat template in place of the tokenizer's")
    system_prompt: str = Field(default="Answer with a number.", description="System message; empty = none")


class ChatTemplate(Addition):
    name = "chat_template"
    env_config_cls = ChatTemplateConfig

    @classmethod
    def config_init(cls):
        config, servers = super().config_init()
        return ChatTemplateConfig(**{**config.model_dump(), "wandb_name": "chat_template"}), servers

    async def setup(self):
        await super().setup()
        self.tokenizer.chat_template = self.config.chat_template

    def messages(self, item) -> list:
        system = [{"role": "system", "content": self.config.system_prompt}] if self.config.system_prompt else []
        return [*system, {"role": "user", "content": f"What is {item[0]}+{item[1]}?"}]

    async def chat(self, item, n: int, temperature: float, split: str):
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answers = await managed.chat_completion(
                messages=self.messages(item),
                n=n,
                max_tokens=self.config.max_new_tokens,
                temperature=temperature,
                split=split,
            )
            nodes = managed.get_state()["nodes"]
        return [reward(choice.message.content or "", item) for choice in answers.choices], nodes

    async def greedy(self, pair) -> float:
        scores, _ = await self.chat(pair, 1, 0.0, "eval")
        return scores[0]

    async def collect_trajectories(self, item) -> Tuple[Optional[ScoredDataGroup], list]:
        scores, nodes = await self.chat(item, self.config.group_size, self.config.temperature, "train")
        self.correct.extend(scores)
        group = ScoredDataGroup(
            tokens=[node.tokens for node in nodes],
            masks=[node.masked_tokens for node in nodes],
            inference_logprobs=[node.logprobs for node in nodes],
            scores=scores,
        )
        return group, []


if __name__ == "__main__":
    ChatTemplate.cli()
