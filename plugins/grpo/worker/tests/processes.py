"""Other processes for tests. They are forked from one server that has imported everything heavy once: starting Python,
torch and transformers anew costs several seconds each time on a busy machine."""

from __future__ import annotations

import multiprocessing

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["worker.tests.preload"])


def start(target, *args):
    """A started process that calls target(*args)."""
    process = _context.Process(target=target, args=args, daemon=True)
    process.start()
    return process


def finish(process, seconds: float) -> int:
    """Its exit status; a process that takes longer is killed and fails the test."""
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"process {process.pid} did not end within {seconds} s")
    return process.exitcode


def worker(path: str) -> None:
    """What `python -m worker --config path` does."""
    import sys

    sys.argv = ["worker", "--config", path]
    from worker.__main__ import main

    sys.exit(main())
