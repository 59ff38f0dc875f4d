"""An author's code that does not return."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from recipe_sdk.environment import watch
from recipe_sdk.environment.watch import Threads


def test_a_call_that_is_given_up_keeps_no_place() -> None:
    async def run() -> list[int]:
        loop, hold = asyncio.get_running_loop(), threading.Event()
        threads = Threads(2)
        loop.set_default_executor(threads)
        hung = [asyncio.ensure_future(asyncio.to_thread(hold.wait)) for _ in range(2)]
        while threads._work_queue.qsize():
            await asyncio.sleep(0.01)
        waiting = [asyncio.ensure_future(asyncio.to_thread(abs, -n)) for n in range(4)]
        await asyncio.sleep(0)
        for task in hung:
            task.cancel()
        try:
            return await asyncio.wait_for(asyncio.gather(*waiting), 60)
        finally:
            hold.set()

    assert asyncio.run(run()) == [0, 1, 2, 3]


def test_too_many_that_never_return_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(watch, "end", said.append)
    threads, hold = Threads(1, most=1), threading.Event()
    for _ in range(2):
        began = threading.Event()
        future = threads.submit(lambda b: (b.set(), hold.wait()), began)
        assert began.wait(60)
        future.cancel()
        future.cancel()  # counts once
    hold.set()
    threads.shutdown()
    assert len(said) == 1 and "2 calls" in said[0] and threads.given_up == 0


HELD_UP = """
import asyncio, time
from recipe_sdk.environment import watch
watch.EVERY, watch.TELL_AFTER = 0.05, 0.1

def busy():
    while True: time.sleep(0.01)

async def main():
    watch.Watch(asyncio.get_running_loop(), 0.5)
    busy()

asyncio.run(main())
"""


def test_a_blocked_event_loop_ends_the_process() -> None:
    ended = subprocess.run([sys.executable, "-c", HELD_UP], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 3
    assert "<string>:7: busy holds up all other calls" in ended.stderr
    assert "busy has held up the event loop for" in ended.stderr
