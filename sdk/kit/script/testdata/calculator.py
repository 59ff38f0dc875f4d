"""An environment with tools and no rollout of its own."""

from recipe_sdk import Completion, Environment, Task, tool


class Calculator(Environment):
    """The model may compute."""

    defaults = {"max_tokens": 8, "max_turns": 2}

    def next(self) -> Task:
        return Task("What is 2 + 3?", data=5)

    @tool
    def add(self, a: float, b: float) -> float:
        """Adds two numbers."""
        return a + b

    def score(self, task: Task, completion: Completion) -> float:
        return float(str(task.data) in completion.text) + completion.text.count("a") / 10
