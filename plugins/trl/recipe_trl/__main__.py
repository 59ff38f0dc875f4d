"""python -m recipe_trl --config FILE"""

from __future__ import annotations

import argparse
import json
import os
import sys

from recipe_sdk import Bridge, fields, leave, settings, work
from recipe_sdk.trl import TRLSettings

from .settings import build, known


def main() -> int:
    """0 completed, stopped or solved; 1 failed (the error event says why); 2 wrong configuration."""
    parser = argparse.ArgumentParser(prog="recipe_trl")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--config", help="JSON configuration file")
    group.add_argument("--check", metavar="FILE", help="check a configuration file, for any number of GPUs, and exit")
    group.add_argument("--known", action="store_true", help="print the settings of the installed TRL as JSON, and exit")
    given = parser.parse_args()
    if given.known:
        print(json.dumps(known()))
        return 0
    try:
        s = settings.from_dict(settings.load(given.config or given.check), TRLSettings)
        if given.check:
            build(s, int(os.environ.get("WORLD_SIZE", 1)))
            return 0
    except (fields.ConfigError, OSError) as e:
        print(e, file=sys.stderr)
        return 2
    return work(s, train, early)


def early() -> None:
    """What takes long and needs no device."""
    import trl

    _ = trl.GRPOTrainer


def train(bridge: Bridge) -> None:
    """Trains the block's batches with TRL."""
    from recipe_sdk.trl import Bridged, run
    from transformers import set_seed
    from trl import GRPOTrainer

    class Trainer(Bridged, GRPOTrainer):
        """GRPOTrainer on the bridge."""

    block = bridge.block
    set_seed(block.seed)  # the first weights of adapters are random, and TRL 1.9 does not seed them itself
    run(Trainer(bridge=bridge, old_policy=block.old_policy, **build(block, bridge.world)))


if __name__ == "__main__":
    leave(main())
