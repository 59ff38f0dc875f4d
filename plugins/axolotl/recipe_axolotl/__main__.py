"""python -m recipe_axolotl --config FILE"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from typing import Any

os.environ.setdefault("AXOLOTL_DO_NOT_TRACK", "1")  # before Axolotl is imported

from recipe_sdk import Bridge, fields, leave, settings, work
from recipe_sdk.trl import TRLSettings

from .settings import unknown, written


def main() -> int:
    """0 completed, stopped or solved; 1 failed (the error event says why); 2 wrong configuration."""
    parser = argparse.ArgumentParser(prog="recipe_axolotl")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--config", help="JSON configuration file")
    group.add_argument("--check", metavar="FILE", help="check a configuration file as Axolotl would, and exit")
    given = parser.parse_args()
    try:
        s = settings.from_dict(settings.load(given.config or given.check), TRLSettings)
        path = written(s, int(os.environ.get("WORLD_SIZE", 1)))
        if given.check:
            load(path, s.config)
            return 0
    except (ValueError, OSError) as e:
        print(e, file=sys.stderr)
        return 2
    return work(s, partial(train, path))


def load(path: str, given: dict[str, Any]) -> Any:
    """Axolotl's configuration, checked by Axolotl. given: what of it is the user's. ConfigError when it is wrong."""
    try:
        cfg = checked(path)
    except ValueError as e:
        raise fields.ConfigError(f"the configuration is wrong:\n  {e}") from e
    from axolotl.integrations.base import PluginManager
    from axolotl.integrations.config import merge_input_args

    mistakes = list(unknown(given, merge_input_args()[1]))
    loaded = PluginManager.get_instance().plugins  # Axolotl goes on without one that it cannot import
    mistakes += [f"config.plugins: {p} cannot be imported; the log says why" for p in cfg.plugins if p not in loaded]
    if mistakes:
        raise fields.ConfigError("the configuration is wrong:\n" + "\n".join(f"  {m}" for m in mistakes))
    return cfg


def checked(path: str) -> Any:
    """Axolotl's configuration, as it reads it from a file. ValueError when it refuses a value."""
    import torch
    from axolotl.cli.config import load_cfg
    from axolotl.utils import environment

    if torch.cuda.is_available():
        return load_cfg(path)
    # With several ranks Axolotl takes for granted that each has a GPU: it asks which of them reach each other, where a
    # PyTorch with CUDA raises without a driver, and loads the model on the GPU of the rank's number.
    environment.check_cuda_p2p_support = lambda: True
    cfg = load_cfg(path)
    cfg.device_map = {"": "cpu"}
    return cfg


def train(path: str, bridge: Bridge) -> None:
    """Builds Axolotl's trainer as `axolotl train` does, and has the bridge decide what it trains and when it ends."""
    from axolotl.integrations.base import PluginManager
    from axolotl.train import setup_model_and_trainer
    from recipe_axolotl import Plugin
    from recipe_sdk.trl import run

    Plugin.given = {"bridge": bridge, "old_policy": bridge.block.old_policy}
    cfg = load(path, bridge.block.config)
    meta = PluginManager.get_instance().load_datasets(cfg)
    trainer, *_ = setup_model_and_trainer(cfg, meta)
    run(trainer)


if __name__ == "__main__":
    leave(main())
