"""What a user writes in `config`: Axolotl's YAML as an object. settings.json says what recipe decides itself."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import torch
from recipe_sdk.fields import ConfigError
from recipe_sdk.trl import Table, TRLSettings, sizes


@cache
def table() -> Table:
    """settings.json."""
    return Table.read(Path(__file__).with_name("settings.json"))


def refused(given: dict[str, Any]) -> list[str]:
    """One line for each setting that recipe decides itself, or whose value is none. Of names Axolotl is asked later."""
    trl = given.get("trl")
    flat = {**given, **{f"trl.{k}": v for k, v in trl.items()}} if isinstance(trl, dict) else given
    known = table().managed.keys() | table().known.keys()
    return table().mistakes({k: v for k, v in flat.items() if k in known}, "Axolotl")


def unknown(given: dict[str, Any], schema: Any, at: str = "config") -> Iterator[str]:
    """One line for each name that Axolotl's schema, a class of pydantic's, does not have: it would pass over them."""
    fields = names(schema)
    for name in sorted(given):
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            yield f"{at}.{name}: Axolotl has no such setting" + (f"; did you mean {near[0]}?" if near else "")
        elif isinstance(given[name], dict):
            inner = [a for a in get_args(fields[name].annotation) or [fields[name].annotation] if is_model(a)]
            if len(inner) == 1:
                yield from unknown(given[name], inner[0], f"{at}.{name}")


def names(schema: Any) -> dict[str, Any]:
    """Every name that a class of pydantic's takes, with the field that it is of."""
    out = {}
    for name, field in schema.model_fields.items():
        alias = field.validation_alias or field.alias
        for one in (name, *getattr(alias, "choices", [alias])):
            if isinstance(one, str):
                out[one] = field
    older = (one for one in out if schema.__name__ == "FSDPConfig" and not one.startswith("fsdp_"))
    return out | {f"fsdp_{one}": out[one] for one in older}


def is_model(annotation: Any) -> bool:
    """Whether it is a class of pydantic's that has names of its own, and takes no others."""
    return hasattr(annotation, "model_fields") and annotation.model_config.get("extra") != "allow"


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
        "base_model": s.model.path, "plugins": ["recipe_axolotl.Plugin", *(given.get("plugins") or [])], "rl": "grpo",
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
