"""An environment that uses what most do: settings, a held-out set, a setup, an asynchronous score."""

import sys
from dataclasses import dataclass

from recipe_sdk import Completion, Environment, InfraFailure, Score, Task, setting

from lists import WORDS


@dataclass
class Sampling:
    """How words are drawn."""

    seed: int = setting(0, "Seed of the order", min=0)


@dataclass
class Settings:
    letter: str = setting("a", "What is to be written", pattern="[a-z]")
    most: int = setting(3, "How many of it are the best answer", min=1, max=10, unit="letters")
    fails: str = setting("", "How score fails", choices=("", "error", "infra", "exit", "nan", "slow", "latin1"))
    sampling: Sampling | None = None
    "How words are drawn."


class Words(Environment):
    """Answers are to have many of one letter.

    The tasks are a few words.
    """

    settings: Settings
    defaults = {"max_tokens": 8}

    def setup(self) -> None:
        if self.settings.letter == "x":
            raise ValueError("there is no word with x")
        self.at = self.settings.sampling.seed if self.settings.sampling else 0
        print("ready to give", len(WORDS), "words")

    def next(self) -> Task:
        self.at += 1
        return Task(WORDS[self.at % len(WORDS)], data={"number": self.at})

    async def score(self, task: Task, completion: Completion) -> float | Score:
        match self.settings.fails:
            case "error":
                return 1 / 0
            case "infra":
                raise InfraFailure("the sandbox is away")
            case "exit":
                import os

                os._exit(7)
            case "nan":
                return float("nan")
            case "latin1":
                sys.stdout.buffer.write("café\n".encode("latin1"))
                sys.stdout.flush()
        assert task.data["number"] >= 0 and len(completion.tokens) == len(completion.logprobs)
        count = completion.text.count(self.settings.letter)
        return Score(
            min(count, self.settings.most) / self.settings.most, {"letters": count, "length": len(completion.text)}
        )

    def held_out(self) -> list[Task]:
        return [Task(f"held out: {word}", data={"number": 0}) for word in WORDS]

    def close(self) -> None:
        self.log("closed")
