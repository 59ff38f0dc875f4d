"""Conversations in which the model is told more than its context holds."""

from dataclasses import dataclass

from recipe_sdk import Environment, Policy, Score, Task, setting

LONG = "long " * 2000


@dataclass
class Settings:
    task: bool = setting(False, "The first task is too long, and not the second message of each conversation")


class Long(Environment):
    """The model is told more than its context holds."""

    settings: Settings
    defaults = {"max_tokens": 4, "drop_uninformative": False}

    def setup(self) -> None:
        self.given = 0

    def next(self) -> Task:
        self.given += 1
        return Task(data=LONG if self.settings.task and self.given == 1 else "Begin.")

    async def rollout(self, task: Task, policy: Policy) -> Score:
        chat = policy.chat(task.data)
        first = await chat.answer()
        if self.settings.task:
            return Score(len(first.text))
        chat.say(LONG)
        second = await chat.answer()
        return Score(len(first.text), {"truncated": second.truncated and not second.tokens})
