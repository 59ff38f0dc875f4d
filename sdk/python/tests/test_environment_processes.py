"""Scores in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from recipe_sdk import Completion, InfraFailure, Score, Task
from recipe_sdk.environment import load
from recipe_sdk.environment.base import TimedOut
from recipe_sdk.environment.processes import Blocked, Origin, ScoreFailed, Scorers

SOURCE = """
import asyncio, os, subprocess, threading, time
from recipe_sdk import Environment, InfraFailure, Score, Task

class Pool(Environment):
    "Scores in processes."
    processes = 2
    def setup(self):
        if os.path.exists(os.path.join(self.context.folder, "unlicensed")): raise ValueError("no license")
        self.pid = os.getpid()
    def next(self): return Task("x")
    def score(self, task, completion):
        match completion.text:
            case "pid": return self.pid
            case "infra": raise InfraFailure("the sandbox is away")
            case "error": return 1 / 0
            case "metrics": return Score(0.5, {"a": 1})
            case "exit": os._exit(7)
            case "quit": exit(3)
            case "canceled": raise asyncio.CancelledError
            case "kill": os.kill(os.getpid(), 9)
            case "sleep": threading.Event().wait()
            case "main": return float(threading.current_thread() is threading.main_thread())
            case "loop": return asyncio.run(self.same(0.25))
            case "program":
                with open(os.path.join(str(self.context.state), "program"), "w") as file:
                    file.write(str(subprocess.Popen(["sleep", "1000"]).pid))
                threading.Event().wait()
        return task.data
    async def same(self, value, seconds=0.0):
        await asyncio.sleep(seconds)
        return value
    async def cancels(self): raise asyncio.CancelledError
    async def holds_up(self): threading.Event().wait()
    def close(self): open(os.path.join(str(self.context.state), f"closed-{os.getpid()}"), "w").close()
"""


def origin(folder: Path) -> Origin:
    (folder / "pool.py").write_text(SOURCE)
    return Origin(str(folder / "pool.py"), "", "pool", "test", str(folder), str(folder), {})


def with_scorers(folder: Path, use: Callable[[Scorers], Awaitable[Any]]) -> Any:
    """Runs a coroutine that uses two processes, and ends them."""

    async def run() -> Any:
        scorers = Scorers(origin(folder), 2)
        try:
            return await asyncio.wait_for(use(scorers), 120)
        finally:
            await scorers.close(within=30)
            assert all(p.popen.poll() is not None for p in scorers.all)

    return asyncio.run(run())


async def scores(scorers: Scorers, *texts: str, data: object = 0.5, limit: float = 100) -> list[Any]:
    task = Task("x", data=data)
    each = (scorers.score(task, Completion(t, "stop"), limit) for t in texts)
    return await asyncio.gather(*each, return_exceptions=True)


def test_scores_come_from_other_processes(tmp_path: Path) -> None:
    async def use(scorers: Scorers) -> list[Any]:
        assert await scores(scorers, "", data=[0.25]) == [[0.25]]
        assert await scores(scorers, "metrics", "main", "loop") == [Score(0.5, {"a": 1}), 1.0, 0.25]
        return await scores(scorers, *["pid"] * 8)

    pids = with_scorers(tmp_path, use)
    assert os.getpid() not in pids and 1 <= len(set(pids)) <= 2
    assert {f"closed-{pid}" for pid in pids} <= {path.name for path in tmp_path.glob("closed-*")}


def test_failures_name_their_line_and_kind(tmp_path: Path) -> None:
    async def use(scorers: Scorers) -> list[Any]:
        found = await scores(scorers, "error", "quit", "infra")
        return found + await scores(scorers, "", data=threading.Lock())

    error, quit, infra, unpicklable = with_scorers(tmp_path, use)
    assert isinstance(error, ScoreFailed) and error.problem["message"] == "ZeroDivisionError: division by zero"
    assert error.problem["file"].endswith("pool.py") and error.problem["code"] == 'case "error": return 1 / 0'
    assert isinstance(quit, ScoreFailed) and quit.problem["code"] == 'case "quit": exit(3)'
    assert isinstance(infra, InfraFailure) and str(infra) == "the sandbox is away"
    assert isinstance(unpicklable, Exception) and "pickle" in str(unpicklable)


def test_a_cancellation_of_the_authors_is_a_mistake(tmp_path: Path) -> None:
    async def use(scorers: Scorers) -> list[Any]:
        together = await asyncio.gather(scorers.call_together("cancels", limit=60), return_exceptions=True)
        return await scores(scorers, "canceled", "") + together + [await scorers.call_together("same", 2, limit=60)]

    alone, after, together, same = with_scorers(tmp_path, use)
    assert isinstance(alone, ScoreFailed) and alone.problem["code"] == 'case "canceled": raise asyncio.CancelledError'
    assert (after, same) == (0.5, 2)
    if sys.version_info >= (3, 11):
        assert isinstance(together, ScoreFailed) and together.problem["message"] == "CancelledError"


def test_what_setup_raises_in_a_process_is_named(tmp_path: Path) -> None:
    (tmp_path / "unlicensed").touch()
    (failed,) = with_scorers(tmp_path, lambda scorers: scores(scorers, ""))
    assert isinstance(failed, ScoreFailed) and failed.problem["message"] == "ValueError: no license"
    assert failed.problem["file"].endswith("pool.py") and "raise ValueError" in failed.problem["code"]


@pytest.mark.parametrize(("text", "how"), [("exit", "exit code 7"), ("kill", "signal 9 (Killed)")])
def test_a_process_that_dies_is_replaced(tmp_path: Path, text: str, how: str) -> None:
    async def use(scorers: Scorers) -> list[Any]:
        return await scores(scorers, text, "", "") + await scores(scorers, "", "")

    died, *others = with_scorers(tmp_path, use)
    assert isinstance(died, InfraFailure) and how in str(died)
    assert others == [0.5] * 4  # those of the other process go on


def test_a_score_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """With the program that it has started."""

    async def use(scorers: Scorers) -> list[Any]:
        return await scores(scorers, "program", "sleep", limit=3) + await scores(scorers, "", "")

    program, slept, *others = with_scorers(tmp_path, use)
    assert isinstance(program, TimedOut) and isinstance(slept, TimedOut) and "score_timeout = 3s" in str(slept)
    assert others == [0.5, 0.5]
    gone(int((tmp_path / "program").read_text()))


def test_coroutines_run_together(tmp_path: Path) -> None:
    async def use(scorers: Scorers) -> list[Any]:
        calls = [scorers.call_together("same", n, 0.5, limit=60) for n in range(200)]  # serially 100 seconds
        late = scorers.call_together("same", 0, 1000, limit=1)
        return await asyncio.gather(*calls, late, return_exceptions=True)

    *found, late = with_scorers(tmp_path, use)
    assert found == list(range(200)) and isinstance(late, TimedOut)


def test_a_coroutine_that_holds_up_others_is_ended(tmp_path: Path) -> None:
    async def use(scorers: Scorers) -> list[Any]:
        held = await asyncio.gather(scorers.call_together("same", 1, 0.2, limit=1),
                                    scorers.call_together("holds_up", limit=1), return_exceptions=True)  # fmt: skip
        return [*held, await scorers.call_together("same", 2, limit=60)]

    one, two, after = with_scorers(tmp_path, use)
    assert isinstance(one, Blocked) and isinstance(two, Blocked) and after == 2


def test_a_call_that_is_canceled_is_ended(tmp_path: Path) -> None:
    async def use(scorers: Scorers) -> list[Any]:
        waiting = asyncio.ensure_future(scores(scorers, "sleep", "sleep"))
        while len([p for p in scorers.all if p.owed]) < 2:
            await asyncio.sleep(0.01)
        waiting.cancel()
        return await scores(scorers, "", "")

    assert with_scorers(tmp_path, use) == [0.5, 0.5]


def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    """Also when it is killed while one of them scores."""
    program = f"""
import asyncio
from recipe_sdk import Completion, Task
from recipe_sdk.environment.processes import Origin, Scorers

async def main():
    scorers = Scorers({origin(tmp_path)!r}, 2)
    print(await scorers.score(Task("x"), Completion("pid", "stop")), flush=True)
    await scorers.score(Task("x"), Completion("sleep", "stop"))

if __name__ == "__main__":
    asyncio.run(main())
"""
    (tmp_path / "parent.py").write_text(program)
    with subprocess.Popen([sys.executable, str(tmp_path / "parent.py")], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        gone(pid)


def gone(pid: int) -> None:
    """Waits for the end of a process."""
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} has not ended"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not zombie(pid)


def zombie(pid: int) -> bool:
    """Whether it has ended and nobody has asked how: in a container there may be nobody who does."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


def test_rollouts_have_no_processes_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "rolls.py").write_text(
        SOURCE.replace("def next", "def rollout(self, task, policy): return 0.0\n    def next")
    )
    with pytest.raises(load.LoadError, match="has processes, and rollouts"):
        load.environment_of(load.module_of(str(tmp_path / "rolls.py")))
