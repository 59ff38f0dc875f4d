"""Two agents, one policy: a solver answers, a checker says whether the answer is right, and both are trained.

Shows what is different when one rollout teaches in more than one role:
- each role has its own prompt, so each gives a group of its own: scores are only compared within a prompt;
- collect_trajectories returns a list of groups. Each is sent, or dropped when its scores are equal, by itself;
- the roles depend on each other: the checker judges what the solver wrote.
"""

import time
from typing import List, Optional, Tuple

from addition import HELD_OUT, Addition, AdditionConfig, prompt, reward
from atroposlib.envs.base import ScoredDataGroup


def question(item, answer: str) -> str:
    shown = answer.strip().split("\n")[0]
    # No space at the end: it is part of the token " yes", which would not follow a space.
    return f"Is {item[0]}+{item[1]}={shown} right, yes or no? Answer:"


def judge(verdict: str, score: float) -> float:
    """The checker's reward: it is to say yes to a right answer and no to a wrong one."""
    return float(verdict.strip().lower().startswith("yes" if score == 1 else "no"))


class TwoAgentsConfig(AdditionConfig):
    pass


class TwoAgents(Addition):
    name = "two_agents"
    env_config_cls = TwoAgentsConfig

    @classmethod
    def config_init(cls):
        config, servers = super().config_init()
        return TwoAgentsConfig(**{**config.model_dump(), "wandb_name": "two_agents"}), servers

    async def sample(self, text: str, tokens: int):
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answers = await managed.completion(
                prompt=text, n=self.config.group_size, max_tokens=tokens, temperature=self.config.temperature
            )
            return [c.text for c in answers.choices], managed.get_state()["nodes"]

    def group(self, nodes, scores: List[float]) -> ScoredDataGroup:
        return ScoredDataGroup(
            tokens=[node.tokens for node in nodes],
            masks=[node.masked_tokens for node in nodes],
            inference_logprobs=[node.logprobs for node in nodes],
            scores=scores,
        )

    async def collect_trajectories(self, item) -> Tuple[Optional[List[ScoredDataGroup]], list]:
        answers, solver = await self.sample(prompt(item), self.config.max_new_tokens)
        scores = [reward(text, item) for text in answers]
        self.correct.extend(scores)
        # One of the answers goes to the checker, all of whose verdicts are then about the same text.
        chosen = self.random.randrange(len(answers))
        verdicts, checker = await self.sample(question(item, answers[chosen]), 2)
        judged = [judge(text, scores[chosen]) for text in verdicts]
        return [self.group(solver, scores), self.group(checker, judged)], []

    async def greedy(self, text: str, tokens: int) -> str:
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answer = await managed.completion(prompt=text, n=1, max_tokens=tokens, temperature=0.0, split="eval")
            return answer.choices[0].text

    async def evaluate(self, *args, **kwargs):
        started, solver, checker = time.time(), [], []
        for item in HELD_OUT:
            answer = await self.greedy(prompt(item), self.config.max_new_tokens)
            solver.append(reward(answer, item))
            checker.append(judge(await self.greedy(question(item, answer), 2), solver[-1]))
        await self.evaluate_log(
            metrics={
                "eval/solver_accuracy": sum(solver) / len(solver),
                "eval/checker_accuracy": sum(checker) / len(checker),
            },
            start_time=started,
            end_time=time.time(),
            generation_parameters={"temperature": 0.0, "max_new_tokens": self.config.max_new_tokens},
        )


if __name__ == "__main__":
    TwoAgents.cli()
