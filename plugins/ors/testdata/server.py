"""Environments of the Open Reward Standard for the tests: tools with faults to order, and one that takes an answer."""

import asyncio
import os
from typing import Any

from openreward.environments import Environment, Server, TextBlock, ToolOutput, terminal, tool
from pydantic import BaseModel


class Two(BaseModel):
    a: int
    b: int


class Answer(BaseModel):
    answer: str


class Sums(Environment):
    """Add with a tool, then submit. The name of a split says what goes wrong in add."""

    def __init__(self, task_spec: dict[str, Any], secrets: dict[str, str]) -> None:
        super().__init__(task_spec, secrets)
        self.secrets = secrets

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train", "test", "hang", "die", "raise", "big", "setup", "slow"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"a": i, "b": 2 * i, "fault": split} for i in range(1, 6)]

    async def setup(self) -> None:
        if self.task_spec["fault"] == "setup":
            raise RuntimeError("no sandbox is free")

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=f"What is {self.task_spec['a']} + {self.task_spec['b']}?")]

    @tool
    async def add(self, params: Two) -> ToolOutput:
        """Add two numbers."""
        match self.task_spec["fault"]:
            case "hang":
                await asyncio.sleep(60)
            case "slow":
                await asyncio.sleep(1.5)
            case "die":
                os._exit(3)
            case "raise":
                raise RuntimeError("the disk is full")
            case "big":
                return ToolOutput(blocks=[TextBlock(text="x" * 100_000_000)])
        return ToolOutput(blocks=[TextBlock(text=str(params.a + params.b))], reward=0.25)

    @tool
    async def submit(self, params: Answer) -> ToolOutput:
        """Submit the answer, which ends the task."""
        right = params.answer == str(self.task_spec["a"] + self.task_spec["b"])
        return ToolOutput(blocks=[TextBlock(text="right" if right else "wrong")], reward=float(right), finished=True)

    @tool
    async def secret(self) -> ToolOutput:
        """Say what secret there is."""
        return ToolOutput(blocks=[TextBlock(text=self.secrets.get("TOKEN", "none"))])


class Plain(Environment):
    """The answer is a message, which the terminal tool gets."""

    @classmethod
    def list_splits(cls) -> list[str]:
        return ["train", "test"]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, Any]]:
        return [{"letter": letter} for letter in "abcdef"]

    def get_prompt(self) -> list[TextBlock]:
        return [TextBlock(text=f"Write the letter {self.task_spec['letter']}.")]

    @terminal
    @tool
    async def grade(self, params: Answer) -> ToolOutput:
        """Count the letter."""
        n = params.answer.count(self.task_spec["letter"])
        return ToolOutput(blocks=[TextBlock(text=str(n))], reward=float(n), finished=True)


app = Server([Sums, Plain]).app
