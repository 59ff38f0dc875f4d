"""An environment that a plugin carries in its binary."""

from recipe_sdk import Completion, Environment, Task

from .tasks import PROMPTS


class Letters(Environment):
    """Answers are to be long."""

    async def next(self) -> Task:
        return Task(messages=[{"role": "user", "content": PROMPTS[0]}])

    def score(self, task: Task, completion: Completion) -> float:
        return len(completion.text) / 8 + completion.tokens[0] % 3
