"""Any task of reasoning-gym as an Atropos environment: problems are generated, and the task itself verifies the
answers.

A plain atroposlib environment that knows nothing of recipe; copy it to start your own. `dataset` names one of
reasoning-gym's tasks (about a hundred: arithmetic, logic, games, graphs) and `dataset_config` sets how hard it is. The
first text in the completion that fits `answer_pattern` is the answer; the task's own score_answer says what it is
worth, 1 when it is right and in some tasks a part of it. Held-out questions are drawn first, and a question among them
is never trained on.
"""

import asyncio
import random
import re
import time
from typing import Any, Dict, List, Optional, Tuple

import reasoning_gym
from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
from pydantic import Field

HELD_OUT_SEED = 10**9  # far from the seeds of training questions: entry i of a task is made from seed + i


class ReasoningGymConfig(BaseEnvConfig):
    dataset: str = Field(default="chain_sum", description="Name of the task in reasoning-gym")
    dataset_config: Dict[str, Any] = Field(default_factory=dict, description="Settings of the task: how hard it is")
    questions: int = Field(default=2000, description="Training questions that are generated")
    held_out: int = Field(default=32, description="Questions that are only evaluated")
    prompt_template: str = Field(default="{question}\nAnswer: ", description="What the model completes")
    answer_pattern: str = Field(default=r"-?\d+", description="Regular expression of an answer; its first match counts")
    chat: bool = Field(default=False, description="Send the prompt as a chat message, in the model's chat template")
    stop: Optional[List[str]] = Field(default=None, description="Texts that end a completion")
    max_new_tokens: int = Field(default=6, description="Tokens of one answer")
    temperature: float = Field(default=1.0, description="Temperature of rollouts; evaluation is greedy")
    seed: int = Field(default=0, description="Seed of the training questions")


def answer(text: str, pattern: str) -> Optional[str]:
    found = re.search(pattern, text)
    return found[0] if found else None


class ReasoningGym(BaseEnv):
    name = "reasoning_gym"
    env_config_cls = ReasoningGymConfig

    @classmethod
    def config_init(cls) -> Tuple[ReasoningGymConfig, List[APIServerConfig]]:
        config = ReasoningGymConfig(
            group_size=8,
            use_wandb=False,
            max_token_length=128,
            steps_per_eval=0,
            wandb_name="reasoning_gym",
        )
        server = APIServerConfig(model_name="policy", base_url="http://localhost:9001/v1", server_type="vllm")
        return config, [server]

    def generate(self, seed: int, size: int):
        return reasoning_gym.create_dataset(self.config.dataset, seed=seed, size=size, **self.config.dataset_config)

    async def setup(self):
        c = self.config
        self.held_out = list(self.generate(HELD_OUT_SEED, c.held_out))
        self.task = self.generate(c.seed, c.questions)
        kept = {entry["question"] for entry in self.held_out}
        self.train = [entry for entry in self.task if entry["question"] not in kept]
        if not self.train:
            raise ValueError(
                f"all {c.questions} questions of {c.dataset} are among the {c.held_out} held-out ones: "
                "lower held_out, or make the task larger by dataset_config"
            )
        self.random = random.Random(c.seed)
        self.correct: List[float] = []

    async def get_next_item(self) -> Dict[str, Any]:
        return self.random.choice(self.train)

    def score_text(self, text: str, entry: Dict[str, Any]) -> float:
        return float(self.task.score_answer(answer(text, self.config.answer_pattern), entry))

    def prompt(self, entry: Dict[str, Any]) -> str:
        return self.config.prompt_template.format(question=entry["question"].strip())

    async def ask(self, entry, n: int, temperature: float, split: str = "train"):
        """n completions, with the sequences of tokens that they came as."""
        settings = {"n": n, "max_tokens": self.config.max_new_tokens, "temperature": temperature, "split": split}
        if self.config.stop:
            settings["stop"] = self.config.stop
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            if self.config.chat:
                messages = [{"role": "user", "content": self.prompt(entry)}]
                reply = await managed.chat_completion(messages=messages, **settings)
                texts = [choice.message.content or "" for choice in reply.choices]
            else:
                reply = await managed.completion(prompt=self.prompt(entry), **settings)
                texts = [choice.text for choice in reply.choices]
            return texts, managed.get_state()["nodes"]

    async def collect_trajectories(self, item) -> Tuple[Optional[ScoredDataGroup], list]:
        texts, nodes = await self.ask(item, self.config.group_size, self.config.temperature)
        scores = [self.score_text(text, item) for text in texts]
        self.correct.extend(float(s == 1) for s in scores)
        group = ScoredDataGroup(
            tokens=[node.tokens for node in nodes],
            masks=[node.masked_tokens for node in nodes],
            inference_logprobs=[node.logprobs for node in nodes],
            scores=scores,
        )
        return group, []  # BaseEnv drops it when all scores are equal

    async def sample(self, entry: Dict[str, Any]) -> Dict[str, Any]:
        """A held-out question with a greedy answer."""
        texts, _ = await self.ask(entry, 1, 0.0, "eval")
        score = self.score_text(texts[0], entry)
        return {"prompt": self.prompt(entry), "completion": texts[0], "gold": entry["answer"], "score": score}

    async def evaluate(self, *args, **kwargs):
        started = time.time()
        # side by side: num_requests_for_eval of the server bounds how many
        samples = await asyncio.gather(*(self.sample(entry) for entry in self.held_out))
        await self.evaluate_log(
            metrics={"eval/held_out_accuracy": sum(s["score"] == 1 for s in samples) / len(samples)},
            samples=samples,
            start_time=started,
            end_time=time.time(),
            generation_parameters={"temperature": 0.0, "max_new_tokens": self.config.max_new_tokens},
        )

    async def wandb_log(self, wandb_metrics=None):
        metrics = wandb_metrics or {}
        if self.correct:
            metrics["train/percent_correct"] = sum(self.correct) / len(self.correct)
            self.correct = []
        await super().wandb_log(metrics)


if __name__ == "__main__":
    ReasoningGym.cli()
