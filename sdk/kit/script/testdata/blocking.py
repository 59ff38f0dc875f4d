"""A rollout that is not asynchronous."""

from recipe_sdk import Environment, Policy, Task


class Blocking(Environment):
    """One answer, waited for in a thread."""

    defaults = {"max_tokens": 6}

    def next(self) -> Task:
        return Task("say something")

    def rollout(self, task: Task, policy: Policy) -> float:
        return policy.chat(task).answer_now().text.count("a")
