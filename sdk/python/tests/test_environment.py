"""Environments: what a class says of itself, and how it is called."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from recipe_sdk import Code, Completion, Environment, InfraFailure, Policy, Reference, Score, Task, setting, tool
from recipe_sdk.environment import describe, load
from recipe_sdk.environment.policy import turns
from recipe_sdk.environment.settings import SettingsError, build, schema
from recipe_sdk.testing import Played, run_environment  # noqa: F401

Run = Callable[..., list[Played]]


@dataclasses.dataclass
class Judge:
    """Who judges."""

    model: Reference
    strict: bool = False


@dataclasses.dataclass
class Settings:
    words: Path
    "Where the words are."
    most: int = setting(3, "At most so many", min=0, max=10, unit="words")
    mode: Literal["a", "b"] = "a"
    weights: dict[str, float] = dataclasses.field(default_factory=dict)
    reward: Code | None = None
    judge: Judge | None = None
    judges: list[Judge] = dataclasses.field(default_factory=list)


class Model(BaseModel):
    rate: float = Field(0.5, ge=0, le=1, description="How often")
    names: list[str] = []
    kind: str = Field("x", pattern="[a-z]")


def test_a_dataclass_becomes_the_schema() -> None:
    made = schema(Settings)
    by_name = {a["name"]: a for a in made["attributes"]}
    assert by_name["words"] == {"name": "words", "type": "string", "doc": "Where the words are.", "required": True}
    assert by_name["most"] == {
        "name": "most", "type": "number", "format": "integer", "doc": "At most so many", "min": 0, "max": 10,
        "unit": "words", "default": 3,
    }  # fmt: skip
    assert by_name["mode"]["enum"] == ["a", "b"]
    assert by_name["weights"]["type"] == ["map", "number"]
    assert by_name["reward"] == {"name": "reward", "type": "string", "doc": "", "format": "callable"}
    judge, judges = made["blocks"]
    assert (judge["name"], judge["nesting"], judges["nesting"]) == ("judge", "single", "list")
    assert judge["schema"]["attributes"][0]["references"] == ["inference"]


def test_a_pydantic_model_becomes_the_schema() -> None:
    rate, names, kind = schema(Model)["attributes"]
    assert rate == {"name": "rate", "type": "number", "doc": "How often", "min": 0, "max": 1, "default": 0.5}
    assert (names["type"], names["default"], kind["pattern"]) == (["list", "string"], [], "[a-z]")
    with pytest.raises(ValueError, match="less than or equal to 1"):
        build(Model, {"rate": 2})


def test_values_become_the_settings(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text("def accuracy():\n    return 7\n")
    judge = {"model": {"address": "inference.vllm.judge", "base_url": "http://x/v1", "model": "m", "api_key": "k"}}
    made = build(Settings, {
        "words": "w.txt", "most": None, "weights": {"a": 1}, "reward": f"{tmp_path}/rewards.py:accuracy",
        "judge": judge, "judges": [{**judge, "strict": True}],
    })  # fmt: skip
    assert made.words == Path("w.txt") and made.most == 3 and made.weights == {"a": 1.0}
    assert made.reward.load()() == 7
    assert made.judge.model == Reference("inference.vllm.judge", "http://x/v1", "m", "k") and made.judges[0].strict


@pytest.mark.parametrize("kind", [complex, set[int], dict[int, str], Literal[1, 2], int | str])
def test_a_type_that_no_attribute_has_is_refused(kind: Any) -> None:
    wrong = dataclasses.make_dataclass("Wrong", [("field", kind)])
    with pytest.raises(SettingsError, match="the setting field has the type"):
        schema(wrong)


class Words(Environment):
    """Words are written.

    More of them.
    """

    settings: Settings
    defaults = {"max_tokens": 4}  # noqa: RUF012

    def next(self) -> Task:
        return Task("say a")

    async def score(self, task: Task, completion: Completion) -> float:
        if completion.text == "away":
            raise InfraFailure("the judge is away")
        return completion.text.count("a") / self.settings.most

    def held_out(self) -> list[Task]:
        return [Task("held out")]


class Adder(Environment):
    """Tools of two kinds."""

    def next(self) -> Task:
        return Task(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 3?"}])

    @tool
    def add(self, a: float, b: float) -> float:
        """Adds."""
        return a + b

    @tool
    async def broken(self) -> None:
        raise InfraFailure("the sandbox is away")

    def score(self, task: Task, completion: Completion) -> float:
        return float(completion.text == "5")


class Game(Environment):
    def next(self) -> Task:
        return Task()

    async def rollout(self, task: Task, policy: Policy) -> dict[str, float]:
        first, second = policy.chat("go", agent="first"), policy.chat("wait", agent="second")
        second.say((await first.answer()).text)
        answer = await second.answer()
        second.score(1, advantages=[[0.5] * len(answer.tokens)])
        return {"first": len(answer.text)}


class Measured(Environment):
    """Scores with metrics, of one turn; an answer of the letter n has a metric that is no number."""

    def next(self) -> Task:
        return Task("say a")

    def score(self, task: Task, completion: Completion) -> Score:
        a = completion.text.count("a")
        return Score(a / 3, {"a": a, "length": float("nan") if completion.text == "n" else len(completion.text)})


class MeasuredGame(Game):
    async def rollout(self, task: Task, policy: Policy) -> Score:  # type: ignore[override]
        first, second = policy.chat("go", agent="first"), policy.chat("wait", agent="second")
        await first.answer()
        second.score(Score(1, {"won": 1}) if (await second.answer()).text else 0)
        return Score(0.5, {"won": 0})


class MeasuredAdder(Adder):
    def score(self, task: Task, completion: Completion) -> Score:  # type: ignore[override]
        return Score(super().score(task, completion), {"short": len(completion.text) < 3})


class Blocking(Environment):
    def next(self) -> Task | None:
        return None if getattr(self, "done", False) else self.last()

    def last(self) -> Task:
        self.done = True
        return Task("once")

    def rollout(self, task: Task, policy: Policy) -> float:
        return len(policy.chat(task).answer_now().text)


def test_the_description() -> None:
    made = describe.describe(Words)
    assert (made["summary"], made["doc"]) == ("Words are written.", "More of them.")
    assert made["held_out"] and not made["rollout"] and made["defaults"] == {"max_tokens": "4"}
    assert describe.describe(Adder)["rollout"] and describe.describe(Game)["rollout"]
    json.dumps(made)


def test_answers_are_scored(run_environment: Run) -> None:  # noqa: F811
    good, bad = run_environment(Words, {"words": "w"}, answers=["aaa", "zzzzzzzz"], tasks=1)
    assert (good.reward, bad.reward) == (1, 0)
    assert bad.completions[""][0].truncated and bad.completions[""][0].text == "zzzz"
    (held_out,) = run_environment(Words, {"words": "w"}, answers=["a"], held_out=True)
    assert held_out.task.prompt == "held out"
    with pytest.raises(InfraFailure, match="away"):
        run_environment(Words, {"words": "w"}, answers=["away"])


def test_tools_are_called(run_environment: Run) -> None:  # noqa: F811
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'
    (played,) = run_environment(Adder, answers=[call, "5"], tasks=1, rollouts=1)
    system, _, _, result, _ = played.conversations[""]
    assert system["content"].startswith("Be brief.") and '"name": "add"' in system["content"]
    assert result == {"role": "user", "content": "<tool_response>\n5\n</tool_response>"}
    assert played.reward == 1


@pytest.mark.parametrize(("call", "told"), [
    ("{", "JSONDecodeError"), ("[]", "a call is"), ('{"name": "sub", "arguments": {}}', "there is no function 'sub'"),
    ('{"name": "add", "arguments": {"a": 1}}', "missing a required argument"),
])  # fmt: skip
def test_what_the_model_calls_wrongly_is_told_to_it(run_environment: Run, call: str, told: str) -> None:  # noqa: F811
    (played,) = run_environment(Adder, answers=[f"<tool_call>{call}</tool_call>", "5"], tasks=1, rollouts=1)
    assert told in played.conversations[""][3]["content"] and played.reward == 1


def test_a_tool_that_is_away_is_no_answer(run_environment: Run) -> None:  # noqa: F811
    with pytest.raises(InfraFailure, match="sandbox"):
        run_environment(Adder, answers=['<tool_call>{"name": "broken"}</tool_call>'], tasks=1)


def test_rollouts_of_several_agents(run_environment: Run) -> None:  # noqa: F811
    (played,) = run_environment(Game, answers=["left", "right"], tasks=1, rollouts=1)
    assert played.rewards == {"second": 1, "first": 5} and played.advantages["second"] == [[0.5] * 5]
    assert [m["content"] for m in played.conversations["second"]] == ["wait", "left", "right"]


def test_scores_have_metrics(run_environment: Run) -> None:  # noqa: F811
    good, bad = run_environment(Measured, answers=["aab", "z"], tasks=1)
    assert (good.reward, good.metrics) == (2 / 3, {"": {"a": 2, "length": 3}})
    assert (bad.reward, bad.metrics) == (0, {"": {"a": 0, "length": 1}})
    with pytest.raises(ValueError, match="score as the metric 'length' returned nan"):
        run_environment(Measured, answers=["n"])
    (played,) = run_environment(MeasuredGame, answers=["x"], tasks=1)
    assert played.rewards == {"first": 0.5, "second": 1}
    assert played.metrics == {"first": {"won": 0}, "second": {"won": 1}}
    (played,) = run_environment(MeasuredAdder, answers=["5"], tasks=1)
    assert (played.reward, played.metrics) == (1, {"": {"short": 1.0}})


def test_tasks_end(run_environment: Run) -> None:  # noqa: F811
    assert [p.reward for p in run_environment(Blocking, answers=["abc"])] == [3]


@pytest.mark.parametrize(("source", "message", "line"), [
    ("x = (\n", "SyntaxError", 1), ("import re\nraise KeyError('k')\n", "KeyError: 'k'", 2),
    ("from recipe_sdk import Environment\n", "has no class that derives from", 0),
    ("from recipe_sdk import Environment\nclass A(Environment): pass\n", "the class A has no method next", 0),
    ("import json\njson.loads('{')\n", "JSONDecodeError", 2),
])  # fmt: skip
def test_mistakes_have_their_line(tmp_path: Path, source: str, message: str, line: int) -> None:
    path, output = tmp_path / "mistaken.py", tmp_path / "out.json"
    path.write_text(source)
    assert describe.main(str(path), "mistaken", str(output)) == 0
    problem = json.loads(output.read_text())["problem"]
    assert message in problem["message"] and problem.get("line", 0) == line
    if line:
        assert problem["file"] == str(path)


def test_a_copy_knows_itself_by_its_original(tmp_path: Path) -> None:
    copy = tmp_path / "copy" / "original_words.py"
    copy.parent.mkdir()
    copy.write_text("import os\nHERE = os.path.dirname(__file__)\n")
    module = load.module_of(str(copy), str(tmp_path / "original_words.py"))
    assert str(tmp_path) == module.HERE


def test_settings_unknown_to_a_class_are_refused(run_environment: Run) -> None:  # noqa: F811
    with pytest.raises(TypeError, match="Settings has no 'wrods'; it has judge, judges, mode, most, reward, weights"):
        build(Settings, {"wrods": "w.txt"})
    with pytest.raises(TypeError, match="Judge has no 'strick'; it has model, strict"):
        build(Settings, {"words": "w", "judge": {"strick": True}})
    with pytest.raises(TypeError, match="wrods"):
        run_environment(Words, {"words": "w", "wrods": 1}, answers=["a"])
    with pytest.raises(TypeError, match="the environment has no settings, got 'words'"):
        run_environment(Adder, {"words": "w"}, answers=["a"])


def test_a_task_that_asks_nothing_is_refused(run_environment: Run) -> None:  # noqa: F811
    class Empty(Environment):
        def next(self) -> Task:
            return Task("")

        def score(self, task: Task, completion: Completion) -> float:
            return 0

    class Begins(Empty):
        async def rollout(self, task: Task, policy: Policy) -> float:
            await policy.chat("What is it?").answer()
            return 1

    with pytest.raises(ValueError, match="a task needs a prompt or messages"):
        run_environment(Empty, answers=["a"], tasks=1)
    assert [p.reward for p in run_environment(Begins, answers=["a"], tasks=1, rollouts=1)] == [1]


def test_calls_of_tools_are_sent_in_the_form_of_openai() -> None:
    row = [
        {"role": "user", "content": "1+1=", "tool_calls": None},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]},
        {"role": "tool", "content": "2", "name": "add", "tool_call_id": "call_0"},
    ]
    call = {"id": "call_0", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    assert turns(row) == [
        {"role": "user", "content": "1+1="},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "call_0", "name": "add"},
    ]
    assert turns(turns(row)) == turns(row)


def test_code_of_a_module_is_loaded(tmp_path, monkeypatch):
    (tmp_path / "mylib").mkdir()
    (tmp_path / "mylib/__init__.py").write_text("")
    (tmp_path / "mylib/rewards.py").write_text("def accuracy(): return 7\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    code = Code(tmp_path, "accuracy", module="mylib.rewards")
    assert code.load()() == 7
    with pytest.raises(TypeError, match=r"mylib\.rewards has no acuracy"):
        Code(tmp_path, "acuracy", module="mylib.rewards").load()
    for name in ("mylib", "mylib.rewards"):
        monkeypatch.delitem(sys.modules, name)


class Counted(Environment):
    """Counts its tasks."""

    def setup(self) -> None:
        self.count = 0

    def next(self) -> Task:
        self.count += 1
        return Task(prompt=f"task {self.count}")

    def score(self, task: Task, completion: Completion) -> float:
        return 1.0


class Passing(Counted):
    """Passes over tasks without making them."""

    def skip(self, count: int) -> None:
        self.count += count


@pytest.mark.parametrize("cls", [Counted, Passing])
def test_a_block_that_goes_on_draws_the_next_tasks(cls: type[Environment], run_environment: Run) -> None:  # noqa: F811
    played = run_environment(cls, answers=["x"], tasks=2, skip=5)
    assert [p.conversations[""][0]["content"] for p in played] == ["task 6", "task 7"]
