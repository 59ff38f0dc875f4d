"""Code that is run: the model writes a function, a sandbox runs it (sandbox.py), and what happened is the reward.

Right answers, wrong ones, code that fails and code that does not end are told apart, because they teach different
things. What the function returns is compared here, not in the process that runs it. Without a working sandbox the
environment does not start, unless its config says sandbox = "none". A quarter of the functions is held out.
"""

import asyncio
import random
from typing import List, Optional, Tuple

from addition import Addition, AdditionConfig
from atroposlib.envs.base import ScoredDataGroup
from pydantic import Field
from sandbox import Sandbox

# What a function is to do, and the function that does it.
TASKS = [
    ("returns x plus {k}", lambda x, k: x + k),
    ("returns x times {k}", lambda x, k: x * k),
    ("returns {k} minus x", lambda x, k: k - x),
    ("returns the larger of x and {k}", lambda x, k: max(x, k)),
]
INPUTS = [-7, -1, 0, 3, 12]
# A function is a task with a k; they are split once, by a fixed seed.
FUNCTIONS = [(task, k) for task in range(len(TASKS)) for k in range(2, 14)]
random.Random(1234).shuffle(FUNCTIONS)
HELD_OUT, TRAIN = FUNCTIONS[:12], FUNCTIONS[12:]


class CodeConfig(AdditionConfig):
    max_new_tokens: int = Field(default=48, description="Tokens of one function body")
    eval_temperature: float = Field(
        default=0.0, description="Temperature of evaluation; 0: one greedy program a function, else group_size of them"
    )
    sandbox: str = Field(
        default="bubblewrap", description='What programs run in: "bubblewrap", or "none" for limits only'
    )
    seconds: int = Field(default=2, description="CPU time that a program gets")
    megabytes: int = Field(default=256, description="Memory that it gets")
    wrong: float = Field(default=0.0, description="Reward of code that runs and gives a wrong result")
    failed: float = Field(default=-0.5, description="Reward of code that raises, or is no Python")
    endless: float = Field(default=-1.0, description="Reward of code that uses up its limits")


class Code(Addition):
    name = "code"
    env_config_cls = CodeConfig

    @classmethod
    def config_init(cls):
        config, servers = super().config_init()
        given = {**config.model_dump(exclude={"max_new_tokens"}), "wandb_name": "code", "max_token_length": 256}
        return CodeConfig(**given), servers

    async def setup(self):
        await super().setup()
        self.sandbox = Sandbox(self.config.sandbox)
        await self.sandbox.probe()

    async def get_next_item(self) -> Tuple[int, int]:
        return self.random.choice(TRAIN)

    def question(self, item) -> str:
        return f"# f {TASKS[item[0]][0].format(k=item[1])}.\ndef f(x):\n   "

    def program(self, body: str) -> str:
        """The function ends where the next thing at the margin begins."""
        lines = ["   " + body.split("\n")[0]]
        for line in body.split("\n")[1:]:
            if line and not line[0].isspace():
                break
            lines.append(line)
        return "def f(x):\n" + "\n".join(lines) + "\n"

    async def outcomes(self, item, texts: List[str]) -> List[str]:
        c, (task, k) = self.config, (TASKS[item[0]][1], item[1])
        return await asyncio.gather(
            *(
                self.sandbox.judge(self.program(text), INPUTS, lambda x: task(x, k), c.seconds, c.megabytes)
                for text in texts
            )
        )

    def score(self, outcome: str) -> float:
        return 1.0 if outcome == "right" else getattr(self.config, outcome)

    async def write(self, item, n: int, temperature: float, split: str):
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answers = await managed.completion(
                prompt=self.question(item),
                n=n,
                max_tokens=self.config.max_new_tokens,
                temperature=temperature,
                split=split,
            )
            return await self.outcomes(item, [c.text for c in answers.choices]), managed.get_state()["nodes"]

    async def collect_trajectories(self, item) -> Tuple[Optional[ScoredDataGroup], list]:
        outcomes, nodes = await self.write(item, self.config.group_size, self.config.temperature, "train")
        self.correct.extend(float(o == "right") for o in outcomes)
        group = ScoredDataGroup(
            tokens=[node.tokens for node in nodes],
            masks=[node.masked_tokens for node in nodes],
            inference_logprobs=[node.logprobs for node in nodes],
            scores=[self.score(o) for o in outcomes],
        )
        return group, []

    async def evaluate(self, *args, **kwargs):
        temperature = self.config.eval_temperature
        n = self.config.group_size if temperature > 0 else 1
        outcomes = []
        for item in HELD_OUT:
            outcomes.extend((await self.write(item, n, temperature, "eval"))[0])
        await self.evaluate_log(
            metrics={f"eval/{o}": outcomes.count(o) / len(outcomes) for o in ("right", "wrong", "failed", "endless")}
        )


if __name__ == "__main__":
    Code.cli()
