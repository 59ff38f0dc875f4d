"""Answers the tasks by their own solutions, and looks at what follows. The argument is a folder for the state."""

import os
import sys
from pathlib import Path

from recipe_reasoning_gym.gym import DatasetSpec, ReasoningGym, Settings
from recipe_reasoning_gym.levels import Levels
from recipe_sdk import Completion
from recipe_sdk.environment.base import Context


def make(**more):
    env = ReasoningGym()
    env.context = Context(state=Path(sys.argv[1]))
    env.settings = Settings(success_window=8, eval_tasks=16, **more)
    env.setup()
    return env


def answer(env, task, right=True):
    text = task.data.entry["answer"] if right else "nonsense"
    return env.score(task, Completion(f"I think it is <answer>0</answer>, no, <answer> {text} </answer>", "stop"))


names = ["chain_sum", "letter_counting", "leg_counting"]
env = make(datasets=[DatasetSpec(name=n, weight=i) for i, n in enumerate(names)])
seen = set()
for _ in range(200):
    task = env.next()
    seen.add(task.data.dataset)
    assert answer(env, task) == 1, task
    assert answer(env, task, right=False) < 0.5, task
    assert task.data.entry["question"] not in {t.data.entry["question"] for t in env.held_out()}
    assert task.messages[0]["role"] == "system" and "<answer>" in task.messages[0]["content"]
assert seen == {"letter_counting", "leg_counting"}, f"weight 0 is drawn: {seen}"
assert [t.data.entry["question"] for t in env.held_out()] == [
    t.data.entry["question"] for t in make(datasets=env.settings.datasets).held_out()
], "the held-out set differs from one start to the next"

# A block that goes on draws the tasks that would have come next, also where many questions are held-out ones.
few = [
    DatasetSpec(name="chain_sum", config={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}),
    DatasetSpec(name="leg_counting", config={"min_animals": 1, "max_animals": 1, "max_instances": 2}),
]
env, later = make(datasets=few), make(datasets=few)
drawn = [env.next().data.entry["question"] for _ in range(60)]
later.skip(40)
assert [later.next().data.entry["question"] for _ in range(20)] == drawn[40:], "a skipped task is not one of next"

try:  # config would decide which tasks are held out
    make(datasets=[DatasetSpec(name="chain_sum", config={"seed": 3})])
    raise AssertionError("a seed in config was ignored")
except ValueError as e:
    assert "set the block's seed" in str(e), e

rising = [DatasetSpec(name="chain_sum", curriculum=True)]
env = make(datasets=rising)
first = [env.next() for _ in range(8)]
for task in first:
    answer(env, task, right=False)
assert env.next().data.level == 0, "bad answers raise the level"
for task in (env.next() for _ in range(8)):
    answer(env, task)
assert env.next().data.level == 1, "good answers do not raise the level"
for task in first:
    answer(env, task)
assert env.next().data.level == 1, "answers to tasks of an earlier level count"
for task in env.held_out() * 2:
    answer(env, task)
assert env.next().data.level == 1, "an evaluation raises the level"
assert make(datasets=rising).next().data.level == 1, "a restart forgets the level"

# The file may have come from elsewhere: what it names is neither read nor written, and what it holds ends nothing.
kept = Path(sys.argv[1], "levels.json")
other = Path(sys.argv[1], "other")
for content in ('{"chain_sum": 5}', '{"chain_sum": "5"}', "[1]", "[" * 100_000, "nonsense"):
    other.write_text(content)
    kept.unlink(missing_ok=True)
    kept.symlink_to(other)
    link = kept.with_suffix(".new")
    link.unlink(missing_ok=True)
    link.symlink_to(other)
    levels = Levels(kept, {"chain_sum": 0}, 1, 0.5)
    assert levels.level("chain_sum") == 0, "a link is followed"
    assert levels.scored("chain_sum", 0, 1.0) == 1
    assert other.read_text() == content, "another file is written"
    assert not kept.is_symlink() and Levels(kept, {"chain_sum": 0}, 1, 0.5).level("chain_sum") == 1
    kept.write_text(content)
    Levels(kept, {"chain_sum": 0}, 1, 0.5)
kept.unlink()
os.mkfifo(kept)
assert Levels(kept, {"chain_sum": 0}, 1, 0.5).level("chain_sum") == 0, "a pipe holds it up"
