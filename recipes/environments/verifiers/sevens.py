"""A taskset of verifiers: the policy, asked twice, is to write sevens. A package of the hub looks the same."""

import verifiers.v1 as vf

__all__ = ["Sevens", "SevensEnv"]


class Config(vf.TasksetConfig):
    questions: int = 100


class Data(vf.TaskData):
    pass


class Seven(vf.Task[Data]):
    @vf.reward
    async def share(self, trace) -> float:
        said = "".join(m.content or "" for m in trace.assistant_messages)
        return said.count("7") / max(len(said), 8)


class Sevens(vf.Taskset[Seven, Config]):
    def load(self):
        for i in range(self.config.questions):
            yield Seven(Data(prompt=f"{i}+{i}="), self.config.task)


class SevensEnvConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig()


class SevensEnv(vf.Env[SevensEnvConfig]):
    async def run(self, task, agents):
        async with agents.player.interaction(task) as conversation:
            if not (await conversation.turn()).terminated:
                await conversation.turn("more:")
