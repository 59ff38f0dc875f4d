"""What a user writes in `config`: Axolotl's YAML as an object. settings.json says what recipe decides itself."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
from recipe_sdk.fields import ConfigError
from recipe_sdk.trl import TRLSettings, sizes


@cache
def table() -> dict[str, Any]:
    """settings.json."""
    return json.loads(Path(__file__).with_name("settings.json").read_text(encoding="utf-8"))


def refused(given: dict[str, Any]) -> list[str]:
    """One line for each setting that recipe decides itself."""
    flat = {**given, **{f"trl.{k}": v for k, v in (given.get("trl") or {}).items()}}
    return [f"config.{name}: {table()['managed'][name]}" for name in sorted(flat) if name in table()["managed"]]


def configuration(s: TRLSettings, world: int) -> dict[str, Any]:
    """Axolotl's whole configuration. ConfigError with every mistake, one a line."""
    given = dict(s.config)
    if mistakes := refused(given):
        raise ConfigError("the configuration is wrong:\n" + "\n".join(f"  {m}" for m in mistakes))
    trl = dict(given.pop("trl", None) or {})
    passes = int(trl.get("num_iterations") or 1)
    cut = sizes(s.data.batch_size, world, int(given.pop("micro_batch_size", 8)), None, passes)
    length = s.data.max_response_length or s.data.max_length - s.data.max_prompt_length
    out = str(Path(s.checkpoint_dir) / "trainer")
    return {
        **({} if torch.cuda.is_available() else {"bf16": False, "fp16": False}),  # else Axolotl takes float16
        "learning_rate": 1e-6, "optimizer": "adamw_torch", "lr_scheduler": "constant",
        "sequence_len": s.data.max_length, "dataset_prepared_path": str(Path(out) / "prepared"), **given,
        "base_model": s.model.path, "plugins": ["recipe_axolotl.Plugin", *given.get("plugins", [])], "rl": "grpo",
        "trl": {"beta": 0.0, "max_completion_length": length, **trl, "use_vllm": False,
                "num_generations": cut.num_generations},
        "datasets": [{"path": "recipe", "type": "completion"}],  # Plugin.load_datasets is asked first
        "micro_batch_size": cut.per_device_train_batch_size, "gradient_accumulation_steps": cut.steps_per_generation,
        "max_steps": max(s.steps * cut.per_batch, 1), "num_epochs": 1, "seed": s.seed, "output_dir": out,
        "save_strategy": "no", "logging_steps": 1, "val_set_size": 0, "strict": False,
    }  # fmt: skip


def written(s: TRLSettings, world: int) -> str:
    """The file that Axolotl loads. JSON is YAML. Each rank writes it, so that none waits for another."""
    given = configuration(s, world)
    path = Path(s.checkpoint_dir) / "trainer" / "axolotl.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    rank = os.environ.get("RANK", 0)  # processes of two machines may have the same number
    part = path.with_name(f"axolotl-{rank}-{os.getpid()}.part")
    part.write_text(json.dumps(given, indent=1), encoding="utf-8")
    os.replace(part, path)  # a rank that reads it meanwhile sees it whole
    return str(path)
