"""An environment of the Open Reward Standard: additions, with a calculator as a tool and the answer as a plain message.

python -m uvicorn sums:app --port 8000 serves it, for ors.hcl or for anything else that speaks the standard.
"""

import random
from typing import Any

from openreward.environments import Environment, Server, TextBlock, ToolOutput, terminal, tool
from pydantic import BaseModel


class Two(BaseModel):
    a: int
    b: int


class Answer(BaseModel):
    answer: str


class Sums(Environment):
    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        numbers = random.Random(split)
        return [{"a": numbers.randint(10, 99), "b": numbers.randint(10, 99)} for _ in range(500)]

    def get_prompt(self) -> list[TextBlock]:
        a, b = self.task_spec["a"], self.task_spec["b"]
        return [TextBlock(text=f"What is {a} + {b}? Call add, then answer with the number.")]

    @tool
    async def add(self, params: Two) -> ToolOutput:
        """Add two numbers."""
        # A little for a call that can be read, so that the form is learned before the task.
        return ToolOutput(blocks=[TextBlock(text=str(params.a + params.b))], reward=0.1)

    @terminal
    @tool
    async def grade(self, params: Answer) -> ToolOutput:
        """Compare the answer with the sum."""
        right = str(self.task_spec["a"] + self.task_spec["b"]) in params.answer
        return ToolOutput(blocks=[TextBlock(text="right" if right else "wrong")], reward=float(right), finished=True)


app = Server([Sums]).app
