"""Mistakes of authors: each is an answer that names it, and the environment goes on."""

from __future__ import annotations

import asyncio
import bdb
import builtins
import json
import socket
import sys
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from recipe_sdk import Completion, Environment, Score, Task, tool
from recipe_sdk.environment import describe
from recipe_sdk.environment.base import Message
from recipe_sdk.environment.policy import Chat, Policy, turns
from recipe_sdk.environment.serve import Server
from recipe_sdk.environment.settings import build
from recipe_sdk.testing import run

DEADLINE = 20.0  # seconds


def serve(cls: type[Environment], *asked: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The replies of a served environment to calls, one after the other."""
    here, there = socket.socketpair()
    thread = threading.Thread(target=lambda: asyncio.run(Server(cls).run(there)), daemon=True)
    thread.start()
    here.settimeout(DEADLINE)
    replies = []
    opened = ("open", {"settings": {}, "name": "e", "folder": ".", "state": "."})
    with here, here.makefile("rb") as lines:
        for number, (method, params) in enumerate([opened, *asked]):
            here.sendall(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
            reply = json.loads(lines.readline())
            assert reply["id"] == number
            replies.append(reply)
    thread.join(DEADLINE)
    assert not thread.is_alive()
    return replies[1:]


ANSWER = {"text": "a", "finish": "stop", "tokens": [1], "logprobs": [-1.0]}
SCORE = ("score", {"task": 1, "completion": ANSWER})


def raising(error: BaseException) -> type[Environment]:
    """An environment whose first score raises it."""

    class Raises(Environment):
        left = 1

        def next(self) -> Task:
            return Task("x")

        def score(self, task: Task, completion: Completion) -> float:
            if self.left:
                self.left = 0
                raise error
            return 0.5

    return Raises


def waiting(error: BaseException) -> type[Environment]:
    """The same, asynchronous."""

    class Waits(Environment):
        left = 1

        async def next(self) -> Task:
            return Task("x")

        async def score(self, task: Task, completion: Completion) -> float:
            await asyncio.sleep(0)
            if self.left:
                self.left = 0
                raise error
            return 0.5

    return Waits


class Panic(BaseException):
    """What a library in Rust raises (pyo3_runtime.PanicException)."""


SINCE_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not tell who has canceled")


@pytest.mark.parametrize("made", [raising, waiting])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (StopIteration(), "StopIteration"),
        (SystemExit(3), "SystemExit: it asked the program to end, with 3"),
        (SystemExit(), "SystemExit: it asked the program to end"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (TimeoutError("no answer of the judge"), "TimeoutError: no answer of the judge"),
        (futures.CancelledError(), "CancelledError"),
        (futures.InvalidStateError("done"), "InvalidStateError: done"),
        pytest.param(asyncio.CancelledError(), "CancelledError", marks=SINCE_3_11),
        (Panic("index out of bounds"), "Panic: index out of bounds"),
        (bdb.BdbQuit(), "BdbQuit: a debugger was started (breakpoint() or pdb), which has no terminal here: remove it"),
    ],
)
def test_an_exit_in_user_code_is_a_mistake(
    made: Callable[[BaseException], type[Environment]], error: BaseException, message: str
) -> None:
    _, failed, scored = serve(made(error), ("next", {}), SCORE, SCORE)
    assert message in failed["error"]["message"]
    assert failed["error"]["data"]["kind"] == "failed"
    assert failed["error"]["data"]["code"] == "raise error" and failed["error"]["data"]["file"] == __file__
    assert scored["result"] == {"score": 0.5, "metrics": {}}


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Unprintable(), "Unprintable: (its own text cannot be shown: ValueError)"),
        (ValueError("a" + "b" * 10_000_000 + "c"), "ValueError: a"),
        (RuntimeError("caf\udce9"), "RuntimeError: caf"),
    ],
)
def test_an_exception_with_unfit_text_is_shortened(error: BaseException, message: str) -> None:
    _, failed, scored = serve(raising(error), ("next", {}), SCORE, SCORE)
    assert failed["error"]["message"].startswith(message) and len(json.dumps(failed)) < 20_000
    assert scored["result"]["score"] == 0.5


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no exception groups")
def test_the_first_of_a_group_of_exceptions_is_named() -> None:
    group = getattr(builtins, "ExceptionGroup", Exception)
    try:
        raise ValueError("in a task")
    except ValueError as e:
        inner = e
    _, failed, _ = serve(raising(group("outer", [group("in between", [inner])])), ("next", {}), SCORE, SCORE)
    assert failed["error"]["message"] == "ValueError: in a task"
    assert failed["error"]["data"]["code"] == 'raise ValueError("in a task")'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (10**400, "score returned an integer that is too large for a number of 64 bits"),
        (Score(0.5, [1.0]), "score returned a Score with the metrics [1.0]; expected"),  # type: ignore[arg-type]
    ],
)
def test_a_score_that_is_no_number_is_named(given: Any, message: str) -> None:
    class Gives(Environment):
        def next(self) -> Task:
            return Task("x")

        def score(self, task: Task, completion: Completion) -> Any:
            return given

    _, failed = serve(Gives, ("next", {}), SCORE)
    assert message in failed["error"]["message"]


def test_a_stop_iteration_in_setup_is_reported() -> None:
    class Empty(Environment):
        def setup(self) -> None:
            next(iter(()))

        def next(self) -> Task:
            return Task("x")

    here, there = socket.socketpair()
    threading.Thread(target=lambda: asyncio.run(Server(Empty).run(there)), daemon=True).start()
    here.settimeout(DEADLINE)
    with here:
        opened = {"id": 1, "method": "open", "params": {"settings": {}, "name": "e", "folder": ".", "state": "."}}
        here.sendall(json.dumps(opened).encode() + b"\n")
        reply = json.loads(here.makefile("rb").readline())
    assert reply["error"]["message"] == "StopIteration" and reply["error"]["data"]["code"] == "next(iter(()))"


@pytest.mark.parametrize("error", [TimeoutError("no answer"), futures.CancelledError(), SystemExit(3), OSError("full")])
def test_an_authors_test_gets_the_exception_itself(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        run(raising(error), answers=["a"], tasks=1)
    assert raised.value is error and raised.traceback[-1].name == "score"


def test_next_still_ends_by_stopiteration() -> None:
    class Few(Environment):
        def next(self) -> Task:
            raise StopIteration

    assert serve(Few, ("next", {})) == [{"jsonrpc": "2.0", "id": 1, "result": None}]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (Task(12), "a task's prompt must be a text, got 12"),  # type: ignore[arg-type]
        (Task(messages=[{"role": "user", "content": b"a"}]), "messages[0] must have a text as its content, got b'a'"),
        (Task(messages=[{"role": "user", "content": "a"}, {"role": "", "content": "b"}]), "messages[1] must have a"),
        (Task(messages=[{"from": "human", "value": "1+1="}]), "messages[0] has no role; it has from, value"),
        (Task(messages=[{"role": "user", "content": None}]), "messages[0] must have a text as its content, got None"),
        (Task(messages=[{"role": "assistant", "content": "", "tool_calls": [1]}]), "messages[0] must have a list of"),
        (Task(messages=[{"role": "assistant", "content": "", "tool_calls": "x"}]), "messages[0] must have a list"),
        (Task(messages=[{"role": "assistant", "content": "", "function_call": {"n": 1}}]), "messages[0] has func"),
        (Task("12\ud800"), "a task's prompt has '\\ud800' at position 2, which is half of a character"),
        (Task(messages=[{"role": "user", "content": "\udce9"}]), "messages[0]'s content has '\\udce9' at position 0"),
        (Task(messages=["hello"]), "messages[0] must be like"),  # type: ignore[list-item]
    ],
)
def test_a_task_that_cannot_be_sent_whole_is_refused(task: Task, message: str) -> None:
    class Gives(Environment):
        given = False

        def next(self) -> Task:
            if self.given:
                return Task("x")
            self.given = True
            return task

    refused, given = serve(Gives, ("next", {}), ("next", {}))
    assert message in refused["error"]["message"]
    assert given["result"]["prompt"] == "x"


def test_messages_of_the_author_s_keep_what_is_sent() -> None:
    sent: list[Message] = [{"role": "system", "content": ""}, {"role": "user", "content": "a", "weight": 1}]
    assert turns(sent) == [{"role": "system", "content": ""}, {"role": "user", "content": "a"}]


def test_an_answer_beyond_json_is_an_error() -> None:
    class Odd(Server):
        async def on_next(self) -> Any:
            return object()

    class Plain(Environment):
        def next(self) -> Task:
            return Task("x")

    here, there = socket.socketpair()
    threading.Thread(target=lambda: asyncio.run(Odd(Plain).run(there)), daemon=True).start()
    here.settimeout(DEADLINE)
    with here:
        here.sendall(b'{"id": 1, "method": "next"}\n')
        reply = json.loads(here.makefile("rb").readline())
    assert "what next gave cannot be sent: Object of type object" in reply["error"]["message"]


@pytest.mark.parametrize("score", [1e30, -2e15, Score(0.5, {"big": 1e16})])
def test_a_refused_score_loses_only_its_group(score: Any) -> None:
    class Large(Environment):
        def next(self) -> Task:
            return Task("x")

        def score(self, task: Task, completion: Completion) -> Any:
            return score

    _, failed = serve(Large, ("next", {}), SCORE)
    assert "expected a number between -1e+15 and 1e+15" in failed["error"]["message"]


def test_a_rollout_that_would_wait_for_itself_is_named() -> None:
    async def ask(_: dict[str, Any]) -> dict[str, Any]:
        return dict(ANSWER)

    async def rollout() -> None:
        chat = Policy(ask, asyncio.get_running_loop()).chat("hello")
        with pytest.raises(RuntimeError, match=r"write await chat\.answer\(\)"):
            chat.answer_now()
        assert (await chat.answer()).text == "a"
        assert (await asyncio.to_thread(other, chat)).text == "a"

    def other(chat: Chat) -> Completion:
        chat.say("again")
        return chat.answer_now()

    asyncio.run(asyncio.wait_for(rollout(), DEADLINE))


@dataclass
class Rule:
    name: str = "x"


@dataclass
class Rules:
    rules: list[Rule] = field(default_factory=lambda: [Rule("a"), Rule("b")])
    names: list[str] = field(default_factory=lambda: ["n"])


@dataclass
class Needed:
    rules: list[Rule]


def test_a_list_without_blocks_has_the_class_s_default() -> None:
    assert build(Rules, {"rules": []}) == Rules()
    assert build(Rules, {"rules": [{"name": "c"}]}).rules == [Rule("c")]
    assert build(Rules, {"names": []}).names == [], "an attribute says what it says"
    assert build(Needed, {"rules": []}).rules == []


def test_a_score_without_conversation_names_the_agent() -> None:
    class Lone(Environment):
        def next(self) -> Task:
            return Task("x")

        async def rollout(self, task: Task, policy: Policy) -> dict[str, float]:
            policy.chat("hello", agent="white")
            return {"white": 1.0, "black": 0.0}

    _, failed = serve(Lone, ("next", {}), ("rollout", {"task": 1, "rollout": 1}))
    assert "a score of 'black', who has no conversation in it: 'white'" in failed["error"]["message"]


def test_the_model_reads_what_its_tool_raised() -> None:
    class Looks(Environment):
        def next(self) -> Task:
            return Task(messages=[{"role": "user", "content": "look"}])

        @tool
        def look(self) -> str:
            """Looks."""
            return str(next(iter(())))

        def score(self, task: Task, completion: Completion) -> float:
            return 0.0

    call = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
    (played,) = run(Looks, answers=[call, "nothing"], tasks=1, rollouts=1)
    assert "Error: StopIteration: " in played.conversations[""][-2]["content"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("workers = 0", "the class E has workers = 0; expected a whole number, 1 or more"),
        ("processes = -1", "the class E has processes = -1; expected a whole number, 0 or more"),
        ("reads = 'HF_TOKEN'", "the class E has reads = 'HF_TOKEN'; expected names: reads = ('HF_TOKEN',)"),
        ("settings = dict", "the class E has settings = …, which declares no attributes; write a type, as in"),
        ("processes = '2'", "the class E has processes = '2'; expected a whole number, 0 or more"),
    ],
)
def test_a_class_is_checked_before_a_run(tmp_path: Path, line: str, message: str) -> None:
    text = f"""
from recipe_sdk import Environment, Task
class E(Environment):
    {line}
    def next(self): return Task("x")
    def score(self, task, completion): return 0.0
"""
    assert described(tmp_path, text)["problem"]["message"].startswith(message)


def test_a_file_that_ends_the_program_is_named(tmp_path: Path) -> None:
    problem = described(tmp_path, "import sys\nsys.exit(2)\n")["problem"]
    assert problem["message"] == "SystemExit: it asked the program to end, with 2" and problem["line"] == 2


def test_arguments_of_a_program_are_not_read(tmp_path: Path) -> None:
    text = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--w', required=True)\np.parse_args([])\n"
    problem = described(tmp_path, text)["problem"]
    assert problem["line"] == 4 and "trace" not in problem
    message = '. argparse read arguments of a program, which has none here: call it below if __name__ == "__main__"'
    assert problem["message"] == f"SystemExit: it asked the program to end, with 2{message}"


@pytest.mark.parametrize("beside", [True, False])
def test_where_a_relative_file_was_looked_for(tmp_path: Path, beside: bool) -> None:
    if beside:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "w.txt").touch()
    problem = described(tmp_path, "import os\nos.chdir('/')\nopen('folder/w.txt')\n")["problem"]
    found = "it is" if beside else "for a file"
    text = f"It was looked for in the working folder /; {found} in {tmp_path}: Path(__file__).parent / 'folder/w.txt'"
    assert problem["message"].endswith(text) and problem["line"] == 3
    problem = described(tmp_path, "open('folder/v.txt')\n")["problem"]
    assert problem["message"].endswith(f"in the working folder {tmp_path}")
    problem = described(tmp_path, "exec(compile(\"open('v.txt')\", '/no/such/folder/x.py', 'exec'))\n")["problem"]
    assert problem["message"].endswith("No such file or directory: 'v.txt'")
    for other in ("'/no/such/file'", "3000"):  # absolute; no name
        assert "working folder" not in described(tmp_path, f"open({other})\n")["problem"]["message"]


def test_a_file_whose_mistake_is_no_utf8_is_named(tmp_path: Path) -> None:
    problem = described(tmp_path, "raise OSError('caf\\udce9')\n")["problem"]
    assert problem["message"].startswith("OSError: caf") and problem["line"] == 1


def described(folder: Path, text: str) -> dict[str, Any]:
    """What describe writes of a file."""
    source, output = folder / "mine.py", folder / "out.json"
    source.write_text(text)
    assert describe.main(str(source), "mine", str(output)) == 0
    found: dict[str, Any] = json.loads(output.read_text())
    return found
