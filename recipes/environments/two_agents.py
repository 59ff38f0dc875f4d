"""Two agents, one policy: a solver answers, a checker says whether the answer is right, and both are trained.

Shows what is different when one rollout teaches in more than one role:
- each role has its own prompt, so each gives a group of its own: scores are only compared within a prompt;
- collect_trajectories returns a list of groups. Each is sent, or dropped when its scores are equal, by itself;
- the roles depend on each other: the checker judges what the solver wrote.
"""

from typing import List, Optional, Tuple

from addition import Addition, AdditionConfig, prompt, reward
from atroposlib.envs.base import ScoredDataGroup


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
        shown = answers[chosen].strip().split("\n")[0]
        question = f"Is it right that {item[0]}+{item[1]}={shown}? Answer yes or no: "
        verdicts, checker = await self.sample(question, 2)
        right = "yes" if scores[chosen] == 1 else "no"
        judged = [float(text.strip().lower().startswith(right)) for text in verdicts]
        return [self.group(solver, scores), self.group(checker, judged)], []


if __name__ == "__main__":
    TwoAgents.cli()
