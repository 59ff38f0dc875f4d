"""verl's configuration out of a block's: its own defaults, what the recipe says in its names, and what recipe decides.

Imports neither torch nor verl: a plan asks for the mistakes (`--check`), and torch takes ten seconds to load.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from .idle import idle
from .values import alone, annotations, wrong

ACTOR, ALGORITHM = "actor_rollout_ref.actor", "algorithm"
SHORT = {name: f"actor_rollout_ref.{name}" for name in ("actor", "model", "ref", "rollout")}
INSTEAD: dict[str, str] = json.loads(Path(__file__).with_name("instead.json").read_text(encoding="utf-8"))
NEEDS = {
    "gae": "a critic", "remax": "the reward of a greedy completion", "gdpo": "rewards by name",
    **dict.fromkeys(("optimal_token_baseline", "tir_optimal_token_baseline"), "the sum of squared probabilities"),
}  # fmt: skip


def package() -> Path:
    """verl's folder, found without importing it."""
    spec = importlib.util.find_spec("verl")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'verl'")
    return Path(spec.origin).parent


def defaults(backend: str) -> DictConfig:
    """verl's own defaults of a PPO trainer, as its main_ppo composes them."""
    engine = backend if backend == "megatron" else "dp"
    with initialize_config_dir(str(package() / "trainer" / "config"), version_base=None):
        return compose("ppo_trainer", overrides=[f"model_engine={engine}"])


def leaves(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value of nested objects that is not an object itself, by the names that lead to it."""
    if isinstance(tree, Mapping) and tree:
        for name, value in tree.items():
            yield from leaves(value, (*path, str(name)))
    else:
        yield path, tree


def full(path: tuple[str, ...]) -> str:
    """The name of a setting in verl's whole configuration: actor.optim.lr is short for actor_rollout_ref.actor.…"""
    return ".".join((SHORT.get(path[0], path[0]), *path[1:])) if path else ""


def instead(name: str) -> str | None:
    """What says it in a recipe, where recipe does it itself."""
    parts = name.split(".")
    return next((w for n in range(len(parts), 0, -1) if (w := INSTEAD.get(".".join(parts[:n])))), None)


@cache
def fields(target: str) -> Mapping[str, str]:
    """The fields of a dataclass of verl with their types, those of its bases included, read from its source."""
    module, _, wanted = target.rpartition(".")
    found, folder = dict[str, str](), package().joinpath(*module.split(".")[1:])
    for file in sorted(folder.glob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]:
        for node in ast.parse(file.read_text(encoding="utf-8")).body if file.exists() else ():
            if isinstance(node, ast.ClassDef) and node.name == wanted:
                for base in node.bases:
                    found |= fields(f"{module}.{base.id}") if isinstance(base, ast.Name) else {}
                found |= annotations(node)
    return found


def default(name: str, base: Any) -> tuple[Any, str]:
    """verl's own value of a setting, and the type of its field; None and "" where there is none."""
    annotation = ""
    for part in name.split("."):
        of = fields(str(base.get("_target_", ""))) if isinstance(base, Mapping) else {}
        base, annotation = (base.get(part) if isinstance(base, Mapping) else None), of.get(part, "")
    return base, annotation


def unknown(name: str, base: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first part of a setting's name that verl does not have, and one that it has and that is like it."""
    node: Any = base
    for part in name.split("."):
        if not isinstance(node, Mapping) or not node:
            return None  # verl leaves open what is in it
        known = {*map(str, node), *fields(str(node.get("_target_", "")))}
        if part not in known:
            return part, next(iter(difflib.get_close_matches(part, sorted(known), 1)), "")
        node = node.get(part)
    return None


def filled(name: str, base: Any) -> tuple[int, str] | None:
    """How many parts of a setting's name lead to one value, in which it can be no setting, and what that is."""
    parts = name.split(".")
    for n in range(1, len(parts)):
        if expected := alone(*default(".".join(parts[:n]), base)):
            return n, expected
    return None


def mistakes(given: Mapping[str, Any], backend: str) -> list[dict[str, Any]]:
    """What is wrong with `config = {…}`, as recipe's plan shows it. A setting of what recipe does itself is one, unless
    it is verl's default, so that a whole file of verl's can be pasted."""
    base: Any = OmegaConf.to_container(defaults(backend))
    out: list[dict[str, Any]] = []

    def add(path: tuple[str, ...], summary: str, detail: str) -> None:
        out.append({"path": ["config", *path], "summary": summary, "detail": detail})

    said: dict[str, tuple[tuple[str, ...], Any]] = {}
    for path, value in leaves(given):
        name = full(path)
        own, annotation = default(name, base)
        if path[:1] in (("defaults",), ("hydra",)) and stock(path, value):
            continue
        if (way := instead(name)) is not None:
            if value not in (own, None, {}):
                add(path, f"{name} is set in another way in a recipe", f"Remove it here. Instead: {way}.")
        elif path and (one := filled(name, base)) is not None:
            above = path[: len(path) - len(name.split(".")) + one[0]]
            if not out or out[-1]["path"] != ["config", *above]:  # once for all that it holds
                add(above, f"{full(above)} cannot be an object", f"verl expects {one[1]}.")
        elif path and (odd := unknown(name, base)) is not None:
            add(
                path,
                f"verl has no setting {name}",
                f"{odd[0]} is unknown" + (f"; is {odd[1]} meant?" if odd[1] else "."),
            )
        elif path and (expected := wrong(name, value, own, annotation)):
            add(path, f"{name} cannot be {value!r}", f"verl expects {expected}.")
        elif name in said:
            add(path, f"{name} is set twice", f"It is {'.'.join(said[name][0])}, too. Leave one of them out.")
        elif path and value != own:
            said[name] = (path, value)
    out += inactive(said, base, backend)
    algorithm = given.get(ALGORITHM)
    estimator = str(algorithm.get("adv_estimator", "grpo")) if isinstance(algorithm, Mapping) else ""
    if estimator in NEEDS:
        add(("algorithm", "adv_estimator"), f"{estimator} needs {NEEDS[estimator]}, which this trainer does not have",
            "Choose grpo, rloo, reinforce_plus_plus, opo, … or use trainer \"grpo\".")  # fmt: skip
    return out


def named(message: str, given: Mapping[str, Any], key: str = "") -> str:
    """The setting that a refusal of verl's is about, by its name in the block: of those that are given the one that the
    message names first, by its own name or its value; else the object that a dataclass is made of. key: that object's
    name in verl's whole configuration, where the refusal is of a dataclass. Empty: the recipe has neither."""
    words = re.findall(r"\w+", message)
    below = {p: v for p, v in leaves(given) if p and (not key or f"{full(p)}.".startswith(f"{key}."))}
    said = {p: min(words.index(w) for w in (p[-1], v) if w in words) for p, v in below.items()
            if p[-1] in words or (isinstance(v, str) and len(v) > 2 and v in words)}  # fmt: skip
    if said:
        return ".".join(("config", *min(said, key=said.__getitem__)))
    if not key or not below:
        return ""
    first = next(iter(below))
    return ".".join(("config", *first[: len(first) - len(full(first).split(".")) + len(key.split("."))]))


def inactive(said: Mapping[str, tuple[tuple[str, ...], Any]], base: Any, backend: str) -> list[dict[str, Any]]:
    """A warning for each setting that has no effect. said: the path and value in the recipe, by whole names."""
    here = {f"{ACTOR}.use_dynamic_bsz": not sized({n.rpartition(".")[2] for n in said if n.startswith(ACTOR)}),
            f"{ALGORITHM}.adv_estimator": "grpo", "backend": backend}  # fmt: skip

    def get(name: str) -> Any:
        return said[name][1] if name in said else here[name] if name in here else default(name, base)[0]

    found = idle({name: value for name, (_, value) in said.items()}, get)
    return [{"path": ["config", *said[name][0]], "summary": f"{name} has no effect", "warning": True,
             "detail": f"{why[0].upper()}{why[1:]}."} for name, why in found]  # fmt: skip


def sized(actor: Any) -> bool:
    """Whether the size of micro-batches is counted in sequences."""
    return bool({"ppo_micro_batch_size", "ppo_micro_batch_size_per_gpu"} & set(actor))


def stock(path: tuple[str, ...], value: Any) -> bool:
    """Whether it is Hydra's list of a file of verl's own, or says no more than that verl's defaults come first."""
    text = (package() / "trainer" / "config" / "ppo_trainer.yaml").read_text(encoding="utf-8")
    own = OmegaConf.to_container(OmegaConf.create(text))
    return value in (own.get(path[0]), ["ppo_trainer", "_self_"]) if len(path) == 1 else path[0] == "hydra"


def merged(
    given: Mapping[str, Any], block: Any, backend: str, *, cuda: bool, flash: bool, apart: bool = False
) -> DictConfig:
    """The whole configuration. Beside verl's defaults: strategy, model and number of steps are the block's; the
    estimator is grpo, and micro-batches are filled by tokens unless their size is given. Without FlashAttention, and
    where sequences have to be kept apart, rows are padded; a CPU computes in float32 and compiles nothing."""
    base = defaults(backend)
    OmegaConf.set_struct(base, False)
    padded = {"use_remove_padding": False, "override_config": {"attn_implementation": "sdpa"}}
    exact = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    engine = {} if cuda else {"use_torch_compile": False, "mixed_precision": exact}
    first = {
        "actor_rollout_ref": {
            "model": padded if not flash else {"use_remove_padding": False} if apart else {},
            "actor": {"use_dynamic_bsz": True, **({} if cuda else {"use_torch_compile": False})},
        },
        "algorithm": {"adv_estimator": "grpo"},
    }  # fmt: skip
    if backend != "megatron":
        first["actor_rollout_ref"]["actor"]["fsdp_config"] = engine
        # verl keeps a forward-only engine in pinned memory, which a machine without a GPU does not have.
        first["actor_rollout_ref"]["ref"] = {"fsdp_config": {**engine, **({} if cuda else {"forward_only": False})}}
    user: dict[str, Any] = {"actor_rollout_ref": {}}
    for name, value in given.items():
        if name == ALGORITHM:
            user[name] = value
        elif name == "actor_rollout_ref" or name in SHORT:  # both may stand beside each other
            more = value if name not in SHORT else {name: value}
            user["actor_rollout_ref"] = OmegaConf.to_container(OmegaConf.merge(user["actor_rollout_ref"], more))
    if sized(user["actor_rollout_ref"].get("actor", {})):
        first["actor_rollout_ref"]["actor"]["use_dynamic_bsz"] = False
    last = {"actor_rollout_ref": {
        "model": {"path": block.model.path, "load_tokenizer": False, "lora": {"merge": True}},
        "actor": {"strategy": backend, "optim": {"total_training_steps": block.steps}},
        "ref": {"strategy": backend},
    }}  # fmt: skip
    out = OmegaConf.merge(base, first, whole(user, OmegaConf.to_container(base)), last)
    assert isinstance(out, DictConfig)
    ref = out.actor_rollout_ref.ref
    for name in ("micro_batch_size", "micro_batch_size_per_gpu", "use_dynamic_bsz", "max_token_len_per_gpu"):
        ref[name if name == "use_dynamic_bsz" else f"ppo_{name}"] = ref.pop(f"log_prob_{name}")  # as verl's worker does
    ref.ppo_infer_max_token_len_per_gpu = ref.ppo_max_token_len_per_gpu
    actor = out.actor_rollout_ref.actor  # verl's rollout, whose setting it is there, follows the other one, too
    actor.setdefault("ppo_infer_max_token_len_per_gpu", actor.ppo_max_token_len_per_gpu)
    correction = out.algorithm.rollout_correction
    if correction.bypass_mode:  # as verl's apply_bypass_mode
        policy = out.actor_rollout_ref.actor.policy_loss
        policy.loss_mode, policy.rollout_correction = "bypass_mode", OmegaConf.to_container(correction)
    return out


def whole(value: Any, like: Any) -> Any:
    """Numbers of a recipe have one type: a whole number is an integer where verl's default is not a fraction."""
    if isinstance(value, Mapping):
        return {k: whole(v, like.get(k) if isinstance(like, Mapping) else None) for k, v in value.items()}
    if isinstance(value, list):
        return [whole(v, None) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() and not isinstance(like, float) else value
