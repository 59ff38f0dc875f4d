"""An environment whose score runs in processes of its own."""

import os
from dataclasses import dataclass

from recipe_sdk import Completion, Environment, Task, setting


@dataclass
class Settings:
    exits: bool = setting(False, "The processes that score end")


class Pool(Environment):
    """Answers are to have many of one letter."""

    settings: Settings
    defaults = {"max_tokens": 8}
    processes = 2

    def setup(self) -> None:
        self.log(f"set up in {os.getpid()}")

    def next(self) -> Task:
        return Task("say a", data={"letter": "a"})

    def score(self, task: Task, completion: Completion) -> float:
        if self.settings.exits:
            os._exit(7)
        return completion.text.count(task.data["letter"])
