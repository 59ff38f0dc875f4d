"""R1-zero style: a base model without a chat template learns to think before it answers, from two rewards and no
examples.

The task is one of reasoning-gym, countdown unless the recipe names another: reach a number with the given ones. The
prompt only describes the form, <think>…</think> <answer>…</answer>. One reward is for the right answer, a smaller one
for keeping the form, so that there is something to learn before the first right answer. What is between the think tags
is never judged.
"""

import re
from typing import Any, Dict, List, Optional

from pydantic import Field
from reasoning_gym_server import ReasoningGym, ReasoningGymConfig

TEMPLATE = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves it. The Assistant "
    "first thinks about the reasoning in the mind and then gives the answer, as in <think>reasoning</think> "
    "<answer>answer</answer>.\n"
    "User: {question}\nAssistant: <think>"
)
FORM = re.compile(r"[^<]*</think>\s*<answer>([^<]*)</answer>\s*", re.DOTALL)


class R1ZeroConfig(ReasoningGymConfig):
    dataset: str = Field(default="countdown", description="Name of the task in reasoning-gym")
    prompt_template: str = Field(default=TEMPLATE, description="What the model completes")
    stop: Optional[List[str]] = Field(default=["</answer>"], description="Texts that end a completion")
    max_new_tokens: int = Field(default=512, description="Tokens of thinking and answer together")
    form_reward: float = Field(default=0.2, description="For keeping the form, right or wrong")


class R1Zero(ReasoningGym):
    name = "r1_zero"
    env_config_cls = R1ZeroConfig

    @classmethod
    def config_init(cls):
        _, servers = super().config_init()
        return R1ZeroConfig(group_size=16, use_wandb=False, max_token_length=1024, wandb_name="r1_zero"), servers

    def score_text(self, text: str, entry: Dict[str, Any]) -> float:
        """The prompt has opened the thinking; the completion closes it, answers and ends."""
        if not text.rstrip().endswith(
            "</answer>"
        ):  # some servers include the text that stopped the completion, others do not
            text += "</answer>"
        found = FORM.match(text)
        if found is None:
            return 0.0
        right = self.task.score_answer(found[1].strip(), entry) == 1  # a partly right answer does not count
        return self.config.form_reward + (1.0 - self.config.form_reward) * float(right)


if __name__ == "__main__":
    R1Zero.cli()
