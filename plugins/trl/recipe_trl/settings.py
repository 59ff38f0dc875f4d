"""What a user writes in `config = {…}`: TRL's GRPOConfig and ModelConfig under their own names, as `trl grpo --config`
reads them, and `peft_config`. settings.json says what recipe decides itself, and why."""

from __future__ import annotations

import difflib
import enum
import types
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import torch
from recipe_sdk.fields import ConfigError
from recipe_sdk.trl import KINDS, Table, TRLSettings, sizes

# What TRL and transformers take beside the types that they state.
MORE = {
    "fsdp": {"bool", "list"}, "scale_rewards": {"bool"}, "lora_target_modules": {"string"},
    "lora_modules_to_save": {"string"}, "peft_config": {"object"},
}  # fmt: skip


@cache
def table() -> Table:
    """settings.json."""
    return Table.read(Path(__file__).with_name("settings.json"))


def of_server(name: str) -> bool:
    """Whether a setting is of TRL's own vLLM. Importance sampling is of the loss."""
    return name.startswith("vllm_") and not name.startswith("vllm_importance_sampling_")


def refused(given: dict[str, Any]) -> list[str]:
    """One line for each setting that recipe decides itself, that no supported TRL has, or whose value is none."""
    return table().mistakes(given, "TRL", lambda name: table().managed["use_vllm"] if of_server(name) else None)


def own(cls: type) -> set[str]:
    """Names of a configuration class's settings."""
    return {f.name for f in fields(cls) if f.init}


def build(s: TRLSettings, world: int) -> dict[str, Any]:
    """Keyword arguments of GRPOTrainer. ConfigError with every mistake, one a line."""
    from transformers.utils import logging
    from trl import GRPOConfig, ModelConfig, get_peft_config, get_quantization_config

    logging.disable_progress_bar()
    given, mistakes = dict(s.config), refused(s.config)
    adapters = given.pop("peft_config", None)
    for name in sorted(given):
        if not mistakes and name not in own(GRPOConfig) | own(ModelConfig):
            mistakes.append(f"config.{name}: the installed TRL does not have it")
    if mistakes:
        raise ConfigError("the configuration is wrong:\n" + "\n".join(f"  {m}" for m in mistakes))
    try:
        of_model = ModelConfig(**{k: given.pop(k) for k in sorted(given) if k in own(ModelConfig)})
        cut = sizes(s.data.batch_size, world, int(given.pop("per_device_train_batch_size", 8)),
                    given.pop("gradient_accumulation_steps", None), int(given.get("num_iterations", 1)))  # fmt: skip
        per_batch = cut.per_batch
        steps = {k: v for k, v in cut._asdict().items() if k != "per_batch"}
        args = GRPOConfig(**{**defaults(s), **given, **decided(s), **steps, "max_steps": max(s.steps * per_batch, 1)})
        args.model_init_kwargs = {
            "revision": of_model.model_revision, "attn_implementation": of_model.attn_implementation,
            "dtype": of_model.dtype, **(args.model_init_kwargs or {}),
        }  # fmt: skip
        peft_config = get_peft_config(of_model) if adapters is None else adapters_of(adapters)
    except (TypeError, ValueError) as e:
        raise ConfigError(f"the configuration is wrong:\n  {e}") from e
    return {"model": s.model.path, "args": args, "peft_config": peft_config,
            "quantization_config": get_quantization_config(of_model)}  # fmt: skip


def defaults(s: TRLSettings) -> dict[str, Any]:
    """What differs from TRL's own defaults and a user may set."""
    gpu = torch.cuda.is_available()
    length = s.data.max_response_length or s.data.max_length - s.data.max_prompt_length
    return {"bf16": gpu, "report_to": "none", "max_completion_length": length, "ddp_timeout": int(s.collective_timeout),
            "disable_tqdm": True, "dataloader_pin_memory": False}  # fmt: skip


def decided(s: TRLSettings) -> dict[str, Any]:
    """What is not the user's to set."""
    return {
        "output_dir": str(Path(s.checkpoint_dir) / "trainer"), "use_cpu": not torch.cuda.is_available(), "seed": s.seed,
        "logging_strategy": "steps", "logging_steps": 1, "save_strategy": "no", "eval_strategy": "no",
        "remove_unused_columns": False, "shuffle_dataset": False, "ignore_data_skip": True,
    }  # fmt: skip


def adapters_of(given: dict[str, Any]) -> Any:
    """peft's configuration from its own names, of which it leaves out those that it does not know."""
    from peft import PeftConfig
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING as KNOWN

    given = {"peft_type": "LORA", "task_type": "CAUSAL_LM", **given}
    if given["peft_type"] not in KNOWN:
        kinds = ", ".join(KNOWN)
        raise ValueError(f"config.peft_config.peft_type: expected one of {kinds}, got {given['peft_type']!r}")
    names = own(KNOWN[given["peft_type"]]) | {"peft_type"}
    if odd := sorted(set(given) - names):
        near = difflib.get_close_matches(odd[0], names, 1)
        raise ValueError(f"config.peft_config.{odd[0]}: peft has no such setting of {given['peft_type']}"
                         + (f"; did you mean {near[0]}?" if near else ""))  # fmt: skip
    return PeftConfig.from_peft_type(**given)


def known() -> dict[str, str]:
    """What `config` may hold with the installed TRL, and of which kinds, for settings.json."""
    from trl import GRPOConfig, ModelConfig

    found = {f.name: set(kinds(f.type)) for c in (ModelConfig, GRPOConfig) for f in fields(c) if f.init}
    every = {name: found.get(name, set()) | MORE.get(name, set()) for name in found | MORE}
    names = sorted(name for name in every if name not in table().managed and not of_server(name))
    return {name: "|".join(k for k in KINDS.values() if k in every[name]) for name in names}


def kinds(annotation: Any) -> Iterator[str]:
    """What recipe's table calls the values of a type."""
    if get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from kinds(one)
    elif get_origin(annotation) is Literal:
        yield from (KINDS[type(value)] for value in get_args(annotation))
    else:
        plain = get_origin(annotation) or annotation
        text = isinstance(plain, type) and issubclass(plain, enum.Enum)
        yield "string" if text else KINDS.get(plain, "object")
