"""Code that is run: the model writes a function, a process of its own runs it against tests, and what happened is the reward.

Right answers, wrong ones, code that fails and code that does not end are told apart, because they teach different things. The process
has limits on time, memory, files and processes (but for root), an empty environment and a folder of its own, and what it has started
ends with it. That stops accidents, not malice: for code that must not be trusted run this block's Python inside a container or a
virtual machine.
"""

import asyncio
import os
import random
import resource
import signal
import sys
import tempfile
from typing import Dict, List, Optional, Tuple

from addition import Addition, AdditionConfig
from atroposlib.envs.base import ScoredDataGroup
from pydantic import Field

# What a function is to do, and the function that does it.
TASKS = [
    ("returns x plus {k}", lambda x, k: x + k),
    ("returns x times {k}", lambda x, k: x * k),
    ("returns {k} minus x", lambda x, k: k - x),
    ("returns the larger of x and {k}", lambda x, k: max(x, k)),
]
INPUTS = [-7, -1, 0, 3, 12]


class CodeConfig(AdditionConfig):
    max_new_tokens: int = Field(default=48, description="Tokens of one function body")
    seconds: int = Field(default=2, description="CPU time that a program gets")
    megabytes: int = Field(default=256, description="Memory that it gets")
    wrong: float = Field(default=0.0, description="Reward of code that runs and gives a wrong result")
    failed: float = Field(default=-0.5, description="Reward of code that raises, or is no Python")
    endless: float = Field(default=-1.0, description="Reward of code that uses up its limits")


def limits(seconds: int, megabytes: int):
    """Runs in the child before the program."""

    def apply():
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

    return apply


async def run(program: str, verdicts: Dict[int, str], seconds: int, megabytes: int) -> str:
    """What the program's exit status means; failed where it means nothing, endless where it used up a limit."""
    with tempfile.TemporaryDirectory() as folder:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-c", program,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            cwd=folder, env={}, preexec_fn=limits(seconds, megabytes), start_new_session=True,
        )  # fmt: skip
        try:
            status = await asyncio.wait_for(child.wait(), 5 * seconds)
        except asyncio.TimeoutError:
            status = -signal.SIGKILL
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)  # it, and what it has started
            except ProcessLookupError:
                pass
            await child.wait()
    if status < 0:  # ended by a signal: a limit
        return "endless"
    return verdicts.get(status, "failed")


class Code(Addition):
    name = "code"
    env_config_cls = CodeConfig

    @classmethod
    def config_init(cls):
        config, servers = super().config_init()
        given = {**config.model_dump(exclude={"max_new_tokens"}), "wandb_name": "code", "max_token_length": 256}
        return CodeConfig(**given), servers

    async def get_next_item(self) -> Tuple[int, int]:
        return self.random.randrange(len(TASKS)), self.random.randint(2, 9)

    def question(self, item) -> str:
        return f"# f {TASKS[item[0]][0].format(k=item[1])}.\ndef f(x):\n   "

    def program(self, item, body: str) -> Tuple[str, Dict[int, str]]:
        """The program, and what its exit status means. The two that mean something are drawn anew each time: code that ends the
        process itself would otherwise soon be found to be the easiest right answer."""
        task, k = TASKS[item[0]][1], item[1]
        right, wrong = random.sample(range(20, 120), 2)
        # The function ends where the next thing at the margin begins.
        lines = ["   " + body.split("\n")[0]]
        for line in body.split("\n")[1:]:
            if line and not line[0].isspace():
                break
            lines.append(line)
        expected = [(x, task(x, k)) for x in INPUTS]
        check = f"sys.exit({right} if all(f(x) == y for x, y in {expected}) else {wrong})"
        return "def f(x):\n" + "\n".join(lines) + f"\nimport sys\n{check}\n", {right: "right", wrong: "wrong"}

    async def outcomes(self, item, texts: List[str]) -> List[str]:
        c = self.config
        return await asyncio.gather(*(run(*self.program(item, text), c.seconds, c.megabytes) for text in texts))

    def score(self, outcome: str) -> float:
        return 1.0 if outcome == "right" else getattr(self.config, outcome)

    async def write(self, item, n: int, temperature: float, split: str):
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answers = await managed.completion(
                prompt=self.question(item), n=n, max_tokens=self.config.max_new_tokens, temperature=temperature, split=split
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
        rng = random.Random(1)  # the same tasks each time
        items = [(rng.randrange(len(TASKS)), rng.randint(2, 9)) for _ in range(16)]
        outcomes = [(await self.write(item, 1, 0.0, "eval"))[0][0] for item in items]
        await self.evaluate_log(metrics={f"eval/{o}": outcomes.count(o) / len(outcomes) for o in ("right", "wrong", "failed", "endless")})


if __name__ == "__main__":
    Code.cli()
