"""GSM8K, grade-school mathematics, as an Atropos environment. Copy it to start your own on another data set.

Data come from the hub (openai/gsm8k) or from local files: `train_path` and `test_path` name .jsonl or .parquet files
with the columns question and answer, so that it runs on a machine without a network. An answer is right when the number
in \\boxed{} equals the gold number, which math_verify decides when it is installed and plain comparison of numbers
otherwise. When all answers of a group are right, shorter ones earn more (length_penalty), so that the group still
teaches something; a group without any difference is dropped (ensure_scores_are_not_same).
"""

import asyncio
import json
import random
import re
import time
from typing import List, Optional, Tuple

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
from pydantic import Field

try:
    from math_verify import parse, verify
except ImportError:  # plain comparison of numbers
    parse = verify = None

SYSTEM = (
    "You are a careful mathematician. Think step by step, then give the final answer as a number inside \\boxed{}, "
    "for example \\boxed{42}."
)


class GSM8KConfig(BaseEnvConfig):
    train_path: Optional[str] = Field(default=None, description="Local .jsonl or .parquet instead of the hub")
    test_path: Optional[str] = Field(default=None, description="The same for the held-out set")
    eval_limit: int = Field(default=200, description="Held-out questions of an evaluation; 0 = all")
    temperature: float = Field(default=1.0, description="Temperature of rollouts; evaluation is greedy")
    length_penalty: bool = Field(default=True, description="Favor shorter answers when all of a group are right")
    length_penalty_from: float = Field(default=0.5, description="Share of max_token_length that costs nothing")
    system_prompt: str = Field(default=SYSTEM, description="System message; empty = none")
    chat_template: Optional[str] = Field(
        default=None, description="Jinja, for a model that has none or fares better with another, as small ones do"
    )
    seed: int = Field(default=42, description="Order of the questions")


def load(path: Optional[str], split: str) -> List[dict]:
    """Questions with their gold numbers."""
    if path is None:
        from datasets import load_dataset

        rows = load_dataset("openai/gsm8k", "main", split=split)
    elif path.endswith(".parquet"):
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(path, columns=["question", "answer"]).to_pylist()
    else:
        with open(path, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f if line.strip()]
    return [{"question": r["question"], "gold": r["answer"].split("#")[-1].strip().replace(",", "")} for r in rows]


def boxed(text: str) -> Optional[str]:
    """What the last \\boxed{} holds, braces inside included."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for i in range(start + len("\\boxed"), len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : i]
    return None


def same_number(answer: str, gold: str) -> bool:
    try:
        return float(answer.replace(",", "").strip(" $")) == float(gold)
    except ValueError:
        return False


def is_right(text: str, gold: str) -> bool:
    answer = boxed(text.split("</think>")[-1])
    if answer is None:
        return False
    if same_number(answer, gold):  # most are: math_verify is slow, and gives up after a few seconds on a busy machine
        return True
    if verify is not None:
        try:
            return bool(verify(parse(f"${gold}$"), parse(f"\\boxed{{{answer}}}")))
        except Exception:  # math_verify gives up on some texts
            pass
    number = re.sub(r"[^0-9.\-/]", "", answer)
    try:
        return float(number) == float(gold)
    except ValueError:
        return number == gold


class GSM8K(BaseEnv):
    name = "gsm8k"
    env_config_cls = GSM8KConfig

    @classmethod
    def config_init(cls) -> Tuple[GSM8KConfig, List[APIServerConfig]]:
        config = GSM8KConfig(
            group_size=8, use_wandb=False, max_token_length=1024, steps_per_eval=25, wandb_name="gsm8k"
        )
        return config, [APIServerConfig(model_name="policy", base_url="http://localhost:9001/v1", server_type="vllm")]

    async def setup(self):
        if self.config.chat_template is not None:  # rollouts; evaluation asks the server, which has its own setting
            self.tokenizer.chat_template = self.config.chat_template
        self.train = load(self.config.train_path, "train")
        self.test = load(self.config.test_path, "test")
        random.Random(self.config.seed).shuffle(self.train)
        self.next = 0
        self.correct: List[float] = []

    async def get_next_item(self) -> dict:
        item = self.train[self.next % len(self.train)]
        self.next += 1
        return item

    def messages(self, item: dict) -> List[dict]:
        system = [{"role": "system", "content": self.config.system_prompt}] if self.config.system_prompt else []
        return [*system, {"role": "user", "content": item["question"]}]

    def shorten(self, scores: List[float], lengths: List[int]) -> List[float]:
        """All are right: what goes beyond the free share of the length costs, linearly, down to 0 at the whole of
        it."""
        limit = self.config.max_token_length
        free = self.config.length_penalty_from * limit
        return [s if n <= free else s * max(0.0, 1 - (n - free) / (limit - free)) for s, n in zip(scores, lengths)]

    async def collect_trajectories(self, item: dict) -> Tuple[Optional[ScoredDataGroup], list]:
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answers = await managed.chat_completion(
                messages=self.messages(item),
                n=self.config.group_size,
                max_tokens=self.config.max_token_length,
                temperature=self.config.temperature,
            )
            nodes = managed.get_state()["nodes"]
        right = [is_right(c.message.content or "", item["gold"]) for c in answers.choices]
        self.correct.extend(float(r) for r in right)
        scores = [1.0 if r else -1.0 for r in right]
        if all(right) and self.config.length_penalty:
            scores = self.shorten(scores, [sum(m != -100 for m in node.masked_tokens) for node in nodes])
        group = ScoredDataGroup(
            tokens=[node.tokens for node in nodes],
            masks=[node.masked_tokens for node in nodes],
            inference_logprobs=[node.logprobs for node in nodes],
            scores=scores,
        )
        return group, []  # BaseEnv drops it when all scores are equal

    async def sample(self, item: dict) -> dict:
        """A held-out question with a greedy answer."""
        messages = self.messages(item)
        answer = await self.server.chat_completion(
            messages=messages, n=1, max_tokens=self.config.max_token_length, temperature=0.0, split="eval"
        )
        text = answer.choices[0].message.content or ""
        return {"messages": messages, "completion": text, "gold": item["gold"], "correct": is_right(text, item["gold"])}

    async def evaluate(self, *args, **kwargs):
        started = time.time()
        questions = self.test[: self.config.eval_limit or None]
        # side by side: num_requests_for_eval of the server bounds how many
        samples = await asyncio.gather(*(self.sample(item) for item in questions))
        await self.evaluate_log(
            metrics={"eval/percent_correct": sum(s["correct"] for s in samples) / max(1, len(samples))},
            samples=samples,
            start_time=started,
            end_time=time.time(),
            generation_parameters={"temperature": 0.0, "max_tokens": self.config.max_token_length},
        )

    async def wandb_log(self, wandb_metrics=None):
        metrics = wandb_metrics or {}
        if self.correct:
            metrics["train/percent_correct"] = sum(self.correct) / len(self.correct)
            self.correct = []
        await super().wandb_log(metrics)


if __name__ == "__main__":
    GSM8K.cli()
