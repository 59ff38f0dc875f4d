"""python -m worker --config FILE"""

from __future__ import annotations

import argparse
import json
import os
import sys

from recipe_sdk import Bridge, fields, leave, settings, stage
from recipe_sdk.control import Control
from recipe_sdk.errors import WorkerError
from recipe_sdk.events import Events

from . import config, describe


def main() -> int:
    """0 completed, stopped or solved; 1 failed (the error event says why); 2 wrong configuration."""
    parser = argparse.ArgumentParser(prog="worker", description="GRPO trainer worker; see PROTOCOL.md")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--config", help="JSON configuration file")
    group.add_argument("--schema", action="store_true", help="print settings, losses and estimators as JSON, and exit")
    group.add_argument("--check", metavar="FILE", help="check a configuration file, print what is decided, and exit")
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
            report(settings.load(given.config), e)
        print(e, file=sys.stderr)
        return 1
    if given.check:
        print(json.dumps(describe.chosen(c), indent=1))
        return 0
    return work(c)


def report(given: dict, error: WorkerError) -> None:
    """Tells the supervisor of an error before there is a run that could."""
    control = Control(given.get("control"), given.get("control_token"))
    events = Events(given.get("events_file"), control)
    events.emit("error", **error.record())
    control.close()
    events.close()


def work(c: config.Config) -> int:
    """One life of the worker."""
    from . import compiled
    from .early import Early
    from .model import device_of
    from .train import Trainer

    compiled.keep_cache()
    try:
        device = device_of(c, int(os.environ.get("LOCAL_RANK", 0)))
        early = Early(c, device)
        bridge = Bridge.open(c, device=device, early=early.load, beside=True)
    except Exception:
        return 1  # reported where the supervisor reads
    try:
        if bridge.block.prepare == stage.BESIDE and not early.room():
            bridge.start()
        Trainer(bridge, early.take()).loop()
    except Exception as e:
        return bridge.close(e)
    return bridge.close()


if __name__ == "__main__":
    leave(main())
