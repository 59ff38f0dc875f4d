"""An environment in one file: the policy learns to write a letter often. Nothing but Python is needed to run it."""

from dataclasses import dataclass

from recipe_sdk import Completion, Environment, Task, setting


@dataclass
class Settings:
    letter: str = setting("7", "The character that answers are to have many of", pattern=".")


class Words(Environment):
    """Answers are to have many of one character."""

    settings: Settings
    defaults = {"group_size": 16, "max_tokens": 4, "drop_uninformative": False}

    def next(self) -> Task:
        return Task("12+34=")

    def score(self, task: Task, completion: Completion) -> float:
        return completion.text.count(self.settings.letter) / 4

    def held_out(self) -> list[Task]:
        return [Task(f"{n}+{n}=") for n in range(10, 20)]
