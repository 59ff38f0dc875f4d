"""The environment."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from recipe_sdk import Completion, Environment, Task, setting

from .levels import Levels

HELD_OUT = 1_000_000_000  # added to the seed: entry i of a dataset is made from its seed + i
SIZE = 1_000_000  # entries of a dataset, after which they come again


@dataclass
class DatasetSpec:
    name: str = setting(doc="Name in reasoning-gym, such as chain_sum")
    weight: float = setting(1.0, "Share of the tasks that come from it", min=0)
    config: Any = setting(None, "Its settings, under reasoning-gym's names")
    level: int | None = setting(
        None, "Level of difficulty of its curriculum at which it begins; config wins over what that sets", min=0
    )
    curriculum: bool = setting(
        False, "Raise the level when the answers are good (success_threshold). It begins at level, or at 0"
    )


@dataclass
class Settings:
    datasets: list[DatasetSpec] = field(
        default_factory=list, metadata={"doc": "A dataset of reasoning-gym; several are mixed by weight"}
    )
    seed: int = setting(0, "Of the tasks", min=0)
    eval_tasks: int = setting(64, "Held-out tasks of all datasets together, at the first level of difficulty", min=1)
    system_prompt: str = setting(
        "default",
        "One of reasoning-gym's (default, DeepSeekZero, simple, direct, chain_of_draft), or a text. Empty: none",
    )
    prompt_template: str = setting("", "Send this as plain text instead of a conversation; {question} is the question")
    answer_pattern: str = setting(
        "",
        "Regular expression: its last match, or the first group of that, is the answer. Default: the <answer> tags",
    )
    success_threshold: float = setting(
        0.8, "With curriculum: mean score at which a dataset goes one level up", min=0, max=1
    )
    success_window: int = setting(
        128, "With curriculum: over how many answers at the present level the mean is taken", min=1
    )
    range_mode: Literal["inclusive", "upper_bound"] = setting(
        "inclusive", "With a level: problems of all levels up to it, or of the highest alone"
    )


@dataclass
class _Entry:
    dataset: str
    level: int
    entry: dict[str, Any]
    verify: Any  # the dataset that made it
    held_out: bool
    seed: int
    index: int


class ReasoningGym(Environment):
    """Procedural tasks of reasoning-gym, which verifies the answers.

    Every dataset of the package can be used and mixed, at a fixed difficulty or with a curriculum that rises with the
    answers. docs/environments/reasoning-gym.md explains it."""

    settings: Settings
    version = "0.1.0"
    defaults = {"max_tokens": 512}

    def setup(self) -> None:
        from reasoning_gym import factory, utils

        s = self.settings
        if not s.datasets:
            raise ValueError('no dataset is named: write datasets { name = "chain_sum" }')
        self._specs = {d.name: d for d in s.datasets}
        if len(self._specs) < len(s.datasets):
            raise ValueError("a dataset is named twice; give each name once, with its weight")
        for d in s.datasets:
            if d.name not in factory.DATASETS:
                raise ValueError(
                    f"reasoning-gym has no dataset {d.name!r}; it has {', '.join(sorted(factory.DATASETS))}"
                )
            if ours := {"seed", "size"} & set(d.config or {}):
                raise ValueError(
                    f"config of {d.name} has {' and '.join(sorted(ours))}, which decide here which tasks are held out: "
                    "set the block's seed instead"
                )
            if (d.curriculum or d.level is not None) and not factory.has_curriculum(d.name):
                raise ValueError(f"{d.name} has no curriculum in reasoning-gym: set its difficulty by config")
        self._system = utils.SYSTEM_PROMPTS.get(s.system_prompt, s.system_prompt)
        self._extract = utils.extract_answer
        self._pattern = re.compile(s.answer_pattern, re.DOTALL) if s.answer_pattern else None
        self._count = 0
        self._made: dict[tuple[str, int, int], Any] = {}
        self._levels = Levels(
            self.context.state / "levels.json",
            {d.name: d.level or 0 for d in s.datasets},
            s.success_window,
            s.success_threshold,
        )
        self._held = self._draw_held_out()
        self._known = {t.data.entry["question"] for t in self._held}

    def _dataset(self, name: str, level: int, seed: int) -> Any:
        """The dataset at a level of difficulty."""
        from reasoning_gym import factory
        from reasoning_gym.coaching.base_curriculum import DefaultCurriculumContext, RangeAttributeMode

        key = (name, level, seed)
        if key not in self._made:
            spec = self._specs[name]
            config = dict(spec.config or {}, seed=seed, size=SIZE)
            if spec.level is not None or spec.curriculum:
                curriculum = factory.create_curriculum(name)
                for attribute in curriculum.attributes.values():
                    curriculum.set_attr_level(attribute.name, min(level, len(attribute.levels) - 1))
                made = curriculum.generate_configuration(
                    {"seed": seed, "size": SIZE}, DefaultCurriculumContext(RangeAttributeMode(self.settings.range_mode))
                )
                config = {**vars(made), **config}
            self._made[key] = factory.create_dataset(name, **config)
        return self._made[key]

    def _task(self, name: str, level: int, seed: int, index: int) -> Task:
        dataset = self._dataset(name, level, seed)
        entry = dataset[index % SIZE]
        data = _Entry(name, level, entry, dataset, seed == HELD_OUT, seed, index)
        question = entry["question"]
        if self.settings.prompt_template:
            return Task(prompt=self.settings.prompt_template.replace("{question}", question.strip()), data=data)
        messages = [{"role": "user", "content": question}]
        if self._system:
            messages.insert(0, {"role": "system", "content": self._system})
        return Task(messages=messages, data=data)

    def _name(self, numbers: random.Random) -> str:
        names = list(self._specs)
        return numbers.choices(names, weights=[self._specs[n].weight for n in names])[0]

    def _draw_held_out(self) -> list[Task]:
        numbers = random.Random(HELD_OUT)
        return [
            self._task(name, self._specs[name].level or 0, HELD_OUT, i)
            for i in range(self.settings.eval_tasks)
            for name in [self._name(numbers)]
        ]

    def next(self) -> Task:
        # A task depends on its number alone, and not on how many questions before it were held-out ones: skip passes
        # over tasks without making them.
        number, self._count = self._count, self._count + 1
        numbers = random.Random(f"{self.settings.seed}/{number}")
        for attempt in range(1000):
            name = self._name(numbers)
            index = numbers.randrange(SIZE) if attempt else number
            task = self._task(name, self._levels.level(name), self.settings.seed, index)
            if task.data.entry["question"] not in self._known:
                return task
        raise RuntimeError(
            f"1000 questions in a row are among the {len(self._held)} held-out ones: lower eval_tasks, or "
            "make the datasets larger by config"
        )

    def skip(self, count: int) -> None:
        self._count += count

    def _answer(self, text: str) -> str | None:
        if self._pattern is None:
            answer: str | None = self._extract(text)
            return answer
        found = list(self._pattern.finditer(text))
        return found[-1][1 if self._pattern.groups else 0] if found else None

    def score(self, task: Task, completion: Completion) -> float:
        made: _Entry = task.data
        score = float(made.verify.score_answer(self._answer(completion.text), made.entry))
        if self._specs[made.dataset].curriculum and not made.held_out:
            level = self._levels.scored(made.dataset, made.level, score)
            if level is not None:
                self.log(f"{made.dataset} goes up to level {level}")
        return score

    def dump_data(self, data: _Entry) -> dict[str, Any]:
        place = {"dataset": data.dataset, "level": data.level, "seed": data.seed, "index": data.index}
        return place | {"question": data.entry["question"], "answer": data.entry["answer"]}

    def load_data(self, data: dict[str, Any]) -> _Entry:
        made: _Entry = self._task(data["dataset"], data["level"], data["seed"], data["index"]).data
        if made.entry["question"] != data["question"]:
            raise ValueError("the datasets of the block give another task in its place: their config has changed")
        return replace(made, held_out=True)  # it counts for no curriculum

    def held_out(self) -> list[Task]:
        return self._held
