"""Two agents that talk in turns, and advantages for each token of one of them."""

from recipe_sdk import Environment, Policy, Score, Task


class Game(Environment):
    """Two agents name fruits in turns."""

    defaults = {"max_tokens": 6}

    def next(self) -> Task:
        return Task(data="fruit")

    async def rollout(self, task: Task, policy: Policy) -> dict[str, Score]:
        first = policy.chat(f"Name a {task.data}.", agent="first")
        second = policy.chat([{"role": "system", "content": "You play."}], agent="second")
        for _ in range(2):
            said = await first.answer()
            second.say(said.text)
            heard = await second.answer(max_tokens=3)
            first.say(heard.text)
        first.score(len(said.text), advantages=[[0.5] * len(c.tokens) for c in first.completions])
        likely = sum(map(sum, (c.logprobs for c in second.completions)))
        return {"second": Score(likely, {"answers": len(second.completions)})}

    def held_out(self) -> list[Task]:
        return [Task(data="nut")]
