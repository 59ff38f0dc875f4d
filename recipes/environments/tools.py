"""Several turns with a tool: the model calls a calculator in the form of Hermes models, reads the result and answers.

Shows what is different when a rollout has more than one turn:
- each member of the group is a conversation of its own, so they run side by side, each in its own managed server;
- the prompt of a turn is the whole text so far with the tool's answer appended. It only grows, so that the tokens of earlier turns
  are the sampled ones and are never made again from text; what the tool wrote is masked and not trained on;
- the tool runs here, in the environment, and a call that cannot be carried out is an answer like any other: the model learns from it.
"""

import ast
import asyncio
import json
import operator
import random
import re
from typing import Optional, Tuple

from addition import Addition, AdditionConfig
from atroposlib.envs.base import ScoredDataGroup
from pydantic import Field

SYSTEM = (
    "You can call a calculator. To do so, write\n"
    '<tool_call>{"name": "calculator", "arguments": {"expression": "12*34"}}</tool_call>\n'
    "and read the result. Then write the answer as <answer>408</answer>.\n"
)
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.USub: operator.neg}


def carry(before, node):
    """The sequence of this turn with what the turns before it train on. atroposlib 0.4 carries that on for chat completions only:
    after a plain completion all turns but the last would be masked, without a word."""
    if before is not None:
        n = len(before.tokens)
        if node.tokens[:n] != before.tokens:
            raise ValueError("a turn does not continue the tokens of the one before it")
        node.masked_tokens[:n], node.logprobs[:n] = before.masked_tokens, before.logprobs
    return node


class ToolsConfig(AdditionConfig):
    max_turns: int = Field(default=3, description="Turns of one conversation")
    max_new_tokens: int = Field(default=64, description="Tokens of one turn")
    largest: int = Field(default=99, description="Largest factor of a question")


def calculate(expression: str) -> int:
    """Integers with + - *; nothing else is ever run."""

    def value(node) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.operand))
        raise ValueError("only integers with + - * are known")

    if len(expression) > 100:
        raise ValueError("the expression is too long")
    return value(ast.parse(expression.strip(), mode="eval").body)


def call(text: str) -> Optional[str]:
    """What the tool says to the call that a turn makes; None when it makes none."""
    found = re.search(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL)
    if found is None:
        return None
    try:
        request = json.loads(found[1])
        if request["name"] != "calculator":
            raise ValueError(f"there is no tool {request['name']}")
        return str(calculate(request["arguments"]["expression"]))
    except (KeyError, TypeError, ValueError, SyntaxError, RecursionError) as e:
        return f"error: {e}"


class Tools(Addition):
    name = "tools"
    env_config_cls = ToolsConfig

    @classmethod
    def config_init(cls):
        config, servers = super().config_init()
        given = {**config.model_dump(exclude={"max_new_tokens"}), "wandb_name": "tools", "max_token_length": 512}
        return ToolsConfig(**given), servers

    async def get_next_item(self) -> Tuple[int, int]:
        return self.random.randint(2, self.config.largest), self.random.randint(2, self.config.largest)

    def question(self, item) -> str:
        return f"{SYSTEM}\nQuestion: What is {item[0]}*{item[1]}?\n"

    async def conversation(self, item, temperature: float, split: str = "train"):
        """One rollout: its tokens, and its score."""
        text, calls, right, node = self.question(item), 0, False, None
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            for _ in range(self.config.max_turns):
                reply = await managed.completion(
                    prompt=text,
                    n=1,
                    max_tokens=self.config.max_new_tokens,
                    temperature=temperature,
                    stop=["</tool_call>", "</answer>"],
                    split=split,
                )
                turn = reply.choices[0].text
                node = carry(node, managed.get_state()["nodes"][-1])
                text = node.full_text
                answer = re.search(r"<answer>\s*(-?\d+)", turn)
                if answer is not None:
                    right = int(answer[1]) == item[0] * item[1]
                    break
                # Whether a server includes the text that stopped it is its own matter.
                response = call(turn if "</tool_call>" in turn else turn + "</tool_call>")
                if response is None:
                    break
                calls += 1
                text += f"\n<tool_response>{response}</tool_response>\n"
        return node, float(right), calls

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
        rng = random.Random(1)  # the same questions each time
        items = [(rng.randint(2, self.config.largest), rng.randint(2, self.config.largest)) for _ in range(16)]
        rollouts = await asyncio.gather(*(self.conversation(item, 0.0, "eval") for item in items))
        await self.evaluate_log(
            metrics={
                "eval/accuracy": sum(score for _, score, _ in rollouts) / len(rollouts),
                "eval/tool_calls": sum(calls for _, _, calls in rollouts) / len(rollouts),
            }
        )


if __name__ == "__main__":
    Tools.cli()
