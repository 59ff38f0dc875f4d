"""python -m worker --config FILE"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import traceback

from recipe_sdk import fields, settings
from recipe_sdk.control import Command, Control
from recipe_sdk.errors import WorkerError
from recipe_sdk.events import Events

from . import config, describe


def main() -> int:
    """0 completed, stopped or solved; 1 failed (the error event says why); 2 wrong configuration."""
    parser = argparse.ArgumentParser(prog="worker", description="GRPO trainer worker; see PROTOCOL.md")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--config", help="JSON configuration file")
    group.add_argument("--schema", action="store_true", help="print settings, losses and estimators as JSON, and exit")
    group.add_argument("--check", metavar="FILE", help="check a configuration file and exit")
    given = parser.parse_args()
    if given.schema:
        json.dump(describe.schema(), sys.stdout, indent=1)
        print()
        return 0
    try:
        c = config.load(given.config or given.check)
    except (fields.ConfigError, OSError) as e:
        print(e, file=sys.stderr)
        return 2
    except WorkerError as e:  # of a user's own loss or estimator, which the configuration asks what it needs
        if given.config and int(os.environ.get("RANK", 0)) == 0:
            report(settings.load(given.config).get("events_file"), e)
        print(e, file=sys.stderr)
        return 1
    return 0 if given.check else work(c)


def report(file: str | None, error: WorkerError) -> None:
    """Tells the supervisor of an error before there is a run that could."""
    events = Events(file)
    events.emit("error", **error.record())
    events.close()


def work(c: config.Config) -> int:
    """One life of the worker."""
    main_rank = int(os.environ.get("RANK", 0)) == 0
    events = Events(c.events_file if main_rank else None)
    control, ranks = None, None
    try:
        if main_rank:
            control = Control(c.control, c.control_token, events.snapshot)
            control.announce(c.ready_file)

            def terminate(*_: object) -> None:
                control.commands.put(Command("stop", {}))

            signal.signal(signal.SIGTERM, terminate)
            signal.signal(signal.SIGINT, terminate)
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        from recipe_sdk.ranks import Ranks

        from .model import device_of
        from .train import Run

        ranks = Ranks(device_of(c, int(os.environ.get("LOCAL_RANK", 0))), c.collective_timeout)
        run = Run(c, ranks, events, control)
        run.load()
        run.connect()
        run.loop()
        return 0
    except WorkerError as e:
        if not main_rank:  # such as memory that only this rank's device lacks: nobody else can tell
            events = Events(c.events_file)
        events.emit("error", **e.record())
        print(e, file=sys.stderr)
    except Exception as e:
        events.emit("error", code="internal", message=f"{type(e).__name__}: {e}", checks=[],
                    traceback=traceback.format_exc())  # fmt: skip
        traceback.print_exc()
    finally:
        if control is not None:
            time.sleep(0.2)  # let the answer to a stop leave before the socket closes
            control.close()
        if ranks is not None:
            ranks.close()
        events.close()
    return 1


def leave(code: int) -> None:
    """Ends the process. Threads that send weights may be inside torch, which aborts when the interpreter is taken down
    around them; receivers see the sockets close."""
    if any(t.name.startswith("weights") for t in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    leave(main())
