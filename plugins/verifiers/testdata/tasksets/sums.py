"""A taskset whose tasks have tools."""

import verifiers.v1 as vf

__all__ = ["Sums"]


class Calculator(vf.Toolset[vf.ToolsetConfig]):
    @vf.tool
    def add(self, a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b


class Data(vf.TaskData):
    answer: str


class Sum(vf.Task[Data]):
    @classmethod
    def toolsets(cls, config):
        return [Calculator(vf.ToolsetConfig())]

    @vf.reward
    async def right(self, trace):
        return float(self.data.answer in trace.last_reply)


class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for a in range(2, 12):
            yield Sum(Data(prompt=f"What is {a} + 3?", answer=str(a + 3)), self.config.task)


if __name__ == "__main__":
    Calculator.run()
