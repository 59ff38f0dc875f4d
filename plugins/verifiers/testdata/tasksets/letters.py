"""A taskset of one turn, as a package of the hub is made. `fails` says what breaks."""

import asyncio

import verifiers.v1 as vf

__all__ = ["Letters"]


class Config(vf.TasksetConfig):
    split: str = "train"
    fails: str = ""


class Data(vf.TaskData):
    letter: str
    fails: str = ""


class Count(vf.Task[Data]):
    async def setup(self, trace, runtime):
        if self.data.fails == "setup":
            raise OSError("the sandbox is away")

    @vf.reward
    async def occurrences(self, trace):
        if self.data.fails == "reward":
            raise ValueError("the judge is on strike")
        if self.data.fails == "slow":
            await asyncio.sleep(60)
        return float(trace.last_reply.count(self.data.letter))

    @vf.metric
    async def length(self, trace):
        return float(len(trace.last_reply))

    @vf.reward(weight=0.5)
    async def one(self, trace):
        return 1.0


class Letters(vf.Taskset[Count, Config]):
    def load(self):
        timeout = vf.TaskTimeout(scoring=0.1 if self.config.fails == "slow" else None)
        for letter in "abcdefghijkl" if self.config.split == "train" else "yz":
            prompt = f"Say {letter}: "
            yield Count(
                Data(prompt=prompt, system_prompt="Be brief.", letter=letter, fails=self.config.fails, timeout=timeout),
                self.config.task,
            )
