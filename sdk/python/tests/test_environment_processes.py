"""Scores in processes of their own."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from recipe_sdk import Completion, InfraFailure, Score, Task
from recipe_sdk.environment import load
from recipe_sdk.environment.processes import Origin, ScoreFailed, Scorers

SOURCE = """
import os, threading
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
            case "kill": os.kill(os.getpid(), 9)
            case "sleep": threading.Event().wait()
        return task.data
    def close(self): open(os.path.join(str(self.context.state), f"closed-{os.getpid()}"), "w").close()
"""


@pytest.fixture
def scorers(tmp_path: Path) -> Iterator[Scorers]:
    made = Scorers(origin(tmp_path), 2)
    yield made
    made.close()


def origin(folder: Path) -> Origin:
    (folder / "pool.py").write_text(SOURCE)
    return Origin(str(folder / "pool.py"), "", "pool", "test", str(folder), str(folder), {})


async def scores(scorers: Scorers, *texts: str, data: object = 0.5) -> list[object]:
    task = Task("x", data=data)
    return await asyncio.gather(*(scorers.score(task, Completion(t, "stop")) for t in texts), return_exceptions=True)


def test_scores_come_from_other_processes(scorers: Scorers, tmp_path: Path) -> None:
    pids = asyncio.run(scores(scorers, *["pid"] * 8))
    assert os.getpid() not in pids and 1 <= len(set(pids)) <= 2
    assert asyncio.run(scores(scorers, "", data=[0.25])) == [[0.25]]
    assert asyncio.run(scores(scorers, "metrics")) == [Score(0.5, {"a": 1})]
    scorers.close()
    assert {f"closed-{pid}" for pid in pids} <= {path.name for path in tmp_path.glob("closed-*")}


def test_failures_name_their_line_and_kind(scorers: Scorers) -> None:
    error, quit, infra, unpicklable = asyncio.run(_failures(scorers))
    assert isinstance(error, ScoreFailed) and error.problem["message"] == "ZeroDivisionError: division by zero"
    assert error.problem["file"].endswith("pool.py") and error.problem["code"] == 'case "error": return 1 / 0'
    assert isinstance(quit, ScoreFailed) and quit.problem["code"] == 'case "quit": exit(3)'
    assert isinstance(infra, InfraFailure) and str(infra) == "the sandbox is away"
    assert isinstance(unpicklable, Exception) and "pickle" in str(unpicklable)


def test_what_setup_raises_in_a_process_is_told(scorers: Scorers, tmp_path: Path) -> None:
    (tmp_path / "unlicensed").touch()
    for _ in range(2):
        (failed,) = asyncio.run(scores(scorers, ""))
        assert isinstance(failed, ScoreFailed) and failed.problem["message"] == "ValueError: no license"
        assert failed.problem["file"].endswith("pool.py") and "raise ValueError" in failed.problem["code"]


async def _failures(scorers: Scorers) -> list[object]:
    found = await scores(scorers, "error", "quit", "infra")
    return found + await scores(scorers, "", data=threading.Lock())


def test_a_process_that_dies_is_an_infra_failure_and_replaced(scorers: Scorers) -> None:
    for _ in range(2):
        (died,) = asyncio.run(scores(scorers, "exit"))
        assert isinstance(died, InfraFailure) and "a process that scores has ended: " in str(died)
        assert "exit code 7" in str(died)  # beside that of one which had not quite started
        assert asyncio.run(scores(scorers, "")) == [0.5]
    (killed,) = asyncio.run(scores(scorers, "kill"))
    assert "signal 9 (Killed)" in str(killed)


def test_the_death_of_a_process_that_was_started_late_is_noticed(scorers: Scorers) -> None:
    """The pool waits for what it knew of when the first score was given."""

    async def run() -> list[object]:
        first = asyncio.ensure_future(scores(scorers, "sleep"))
        while not scorers.context.made or not scorers.context.made[0].is_alive():
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # it waits for the first process alone now
        second = asyncio.ensure_future(scores(scorers, "exit"))
        done, _ = await asyncio.wait([first, second], timeout=60)
        assert len(done) == 2, "nobody has noticed"
        return first.result() + second.result()

    assert [type(x) for x in asyncio.run(run())] == [InfraFailure, InfraFailure]
    assert asyncio.run(scores(scorers, "")) == [0.5]


def test_a_process_that_starts_while_another_dies_is_ended(scorers: Scorers) -> None:
    """The pool ends all that it knows of, comes to know of this one only then, and would wait for it for ever."""

    async def run() -> tuple[object, int]:
        waiting = asyncio.ensure_future(scores(scorers, "sleep"))
        while not scorers.context.made or not scorers.context.made[0].is_alive():
            await asyncio.sleep(0.01)
        pool, known = scorers.pool, scorers.pool._processes
        ((pid, late),) = known.items()
        for _ in range(2):  # the pool sees to processes that are new to it with the next thing that it is given
            dies = asyncio.ensure_future(scores(scorers, "exit"))
        while len(known) < 2:
            await asyncio.sleep(0.01)
        known.pop(pid)
        close = pool._call_queue._reader.close  # what the pool does between ending processes and waiting for them

        def after() -> None:
            known[pid] = late
            close()

        pool._call_queue._reader.close = after
        await asyncio.wait([waiting, dies], timeout=60)
        manager = pool._executor_manager_thread
        if manager is not None:
            await asyncio.to_thread(manager.join, 60)
        return waiting.result()[0], pid

    failed, pid = asyncio.run(run())
    assert isinstance(failed, InfraFailure)
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline, "the pool waits for a process that nobody ends"
        time.sleep(0.05)


def test_a_process_that_dies_while_another_is_started(scorers: Scorers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool closes then what the other would get, and its start says something else than that the pool is broken."""
    assert asyncio.run(scores(scorers, "")) == [0.5]
    pool = scorers.pool
    reader = pool._call_queue._reader
    none_is_idle(scorers)
    start = SpawnProcess.start

    def late(self: SpawnProcess) -> None:
        deadline = time.monotonic() + 5  # other versions of Python than 3.11 close it after the start only
        while not reader.closed and time.monotonic() < deadline:
            time.sleep(0.01)
        start(self)

    monkeypatch.setattr(SpawnProcess, "start", late)
    (died,) = asyncio.run(scores(scorers, "exit"))
    monkeypatch.undo()
    assert isinstance(died, InfraFailure) and "a process that scores has ended" in str(died)
    assert scorers.pool is not pool and asyncio.run(scores(scorers, "")) == [0.5]


def test_a_process_that_cannot_be_started_is_an_infra_failure(
    scorers: Scorers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that there are go on."""
    (pid,) = asyncio.run(scores(scorers, "pid"))

    def refused(self: SpawnProcess) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    none_is_idle(scorers)
    monkeypatch.setattr(SpawnProcess, "start", refused)
    (failed,) = asyncio.run(scores(scorers, ""))
    assert isinstance(failed, InfraFailure) and "no process that scores can be started: [Errno 11]" in str(failed)
    monkeypatch.undo()
    assert alive(pid) and asyncio.run(scores(scorers, "")) == [0.5]


def none_is_idle(scorers: Scorers) -> None:
    """Makes the pool start a process for the next score: it asks this whether one is idle."""
    scorers.pool._idle_worker_semaphore.acquire = lambda blocking: False


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
        deadline = time.monotonic() + 60
        while alive(pid):
            assert time.monotonic() < deadline, f"process {pid} outlived its parent by a minute"
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
