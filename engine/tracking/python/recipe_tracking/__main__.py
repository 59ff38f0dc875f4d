"""Passes the events of a run on to an experiment tracker, until its standard input ends.

It reads lines of JSON: first the settings (settings in program.go), then events as docs/events.md describes them, and
{"flush": SEQ}. It answers with lines of JSON: {"opened": true}, {"flushed": SEQ} when the tracker has all events before
it, {"closed": true}, or {"error": TEXT} as its last line.
"""

import contextlib
import fcntl
import importlib
import json
import os
import sys
import threading
import time

from .samples import Samples

# How long another process may still be closing the same run; how long this one may take to close it without an engine.
LOCK_SECONDS = 120
CLOSE_SECONDS = 120


def answers():
    """The stream of answers. Standard output becomes standard error: packages print to it."""
    stream = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return stream


def lock(folder):
    """The process of an engine that was killed finishes the same run."""
    file = open(os.path.join(folder, "lock"), "w")
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"another process has not finished this run within {LOCK_SECONDS} s") from None
            time.sleep(0.1)


def end_late():
    """Ends this process some time after the engine has ended, for a tracker that does not return."""
    engine = os.getppid()

    def watch():
        while os.getppid() == engine:
            time.sleep(1)
        time.sleep(CLOSE_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def metrics(event):
    """The metrics of an event by their names in the tracker."""
    prefix = event.get("address", "machine")
    if event["type"] == "machine" and "host" in event:  # of a machine of the block's job
        prefix = f"machine/{event['host']}/{prefix}"
    return prefix, {f"{prefix}/{name}": value for name, value in event.get("metrics", {}).items()}


def follow(lines, run, samples, answer):
    for line in lines:
        event = json.loads(line)
        if "flush" in event:
            samples.log_due(run)
            run.flush()
            answer(flushed=event["flush"])
        elif event["type"] in ("metrics", "machine"):
            run.log(*metrics(event), event)
        elif event["type"] == "sample":
            samples.add(event)


def main():
    stream = answers()

    def answer(**message):
        with contextlib.suppress(BrokenPipeError):  # an engine that was killed; what it has sent is still passed on
            stream.write(json.dumps(message) + "\n")

    end_late()
    try:
        lines = iter(sys.stdin)
        settings = json.loads(next(lines))
        held = lock(settings["folder"])
        tracker = importlib.import_module(f"{__package__}.to_{settings['tracker']}")
        run = tracker.Run(settings)
        samples = Samples(settings["folder"])
        answer(opened=True)
        follow(lines, run, samples, answer)
        samples.log(run)
        run.close()
        held.close()
    except Exception as e:
        answer(error=f"{type(e).__name__}: {e}", missing=isinstance(e, ModuleNotFoundError))
        raise
    answer(closed=True)


main()
