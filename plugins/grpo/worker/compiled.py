"""torch.compile of the decoder layers: one compilation for all of them and for rows of any length.

Its results are kept between runs (`keep_cache`), so that a later run's first step takes seconds."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import auto, recompute


def keep_cache() -> None:
    """Puts torch's compile cache into the user's cache folder, where it survives between runs: torch's own default is
    the temporary folder. Entries are keyed by torch by version, GPU and code. To be called before torch compiles."""
    if "TORCHINDUCTOR_CACHE_DIR" in os.environ:
        return
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "recipe" / "torch" / torch.__version__
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a read-only home: the temporary folder serves
    if os.access(folder, os.W_OK):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


def unavailable(device: torch.device) -> str:
    """Why torch.compile is not used on this device when nobody asks for it; empty: it is."""
    if device.type != "cuda":
        return "it pays on a GPU only"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is missing"
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    return "" if compiler else "there is no C compiler (gcc)"


def layers(
    model: nn.Module, recomputed: int = 0, attention: bool = False, products: bool = False, backend: Any = "inductor"
) -> None:
    """Compiles each decoder layer's forward pass; `plain` undoes it. Lengths are dynamic from the first row on.
    recomputed: so many of the first layers calculate their activations again in the backward pass; attention: but what
    attention has found is kept; products: the other layers keep their products only."""
    # Numbers such as an adapter's scale never change. As inputs of the graph they make torch trace everything twice.
    torch._dynamo.config.specialize_float = True
    logging.getLogger("torch._dynamo.variables.higher_order_ops").addFilter(_known)

    def compile(forward: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(forward, dynamic=True, backend=backend)

    for k, layer in enumerate(model.layers):  # type: ignore[arg-type]
        forward = type(layer).forward.__get__(layer)
        usual = compile(forward)
        if k < recomputed:
            keep = recompute.ATTENTION if attention else recompute.NOTHING
        elif products:
            keep = recompute.PRODUCTS
        else:
            layer.forward = usual
            continue
        layer.forward = _either(compile(recompute.wrapped(forward, keep)), usual)


def _known(record: logging.LogRecord) -> bool:
    """Leaves out a warning that is about operations in place, of which decoder layers have none."""
    return "context_fn is passed to torch.utils.checkpoint" not in record.getMessage()


def _either(training: Callable[..., Any], scoring: Callable[..., Any]) -> Callable[..., Any]:
    """Scoring is compiled alike in all layers."""
    return lambda *args, **kwargs: (training if torch.is_grad_enabled() else scoring)(*args, **kwargs)


def plain(model: nn.Module) -> None:
    """The layers' own forward passes again."""
    for layer in model.layers:  # type: ignore[union-attr]
        vars(layer).pop("forward", None)


def lengths(row_tokens: int, longest: int = 1024) -> tuple[int, ...]:
    """Lengths of made-up sequences that fill a row as a batch will. Inductor fuses reductions of 5 Mi numbers and more
    in another way (`can_fuse` of its scheduler), so a full model that is compiled on a short row is compiled again in
    the first step. At most 32,768 tokens: a longer row is always a single sequence. 0: any short row."""
    if not row_tokens:
        return (96, 64)
    full, rest = divmod(max(min(row_tokens, auto.ROWS[0]), 2 * longest), longest)
    return (longest,) * (full - 1) + (longest + rest - 64, 64)


def _times() -> Path | None:
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(folder) / "recipe-times.json" if folder else None


def _key(model: Any) -> str:
    """What a compilation's time depends on, roughly."""
    kinds = sorted({f"{p.dtype}{'' if p.requires_grad else ' frozen'}" for p in model.parameters()})
    return f"{type(model.causal).__name__} {' '.join(kinds)}"


def last_time(model: Any) -> float:
    """Seconds that compiling a model like this took last time; 0: not known."""
    path = _times()
    try:
        return float(json.loads(path.read_text())[_key(model)]) if path else 0.0
    except (OSError, ValueError, KeyError):
        return 0.0


def note_time(model: Any, seconds: float) -> None:
    """Keeps how long it took, for the next run to say."""
    path = _times()
    if path is None:
        return
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(path.read_text()) if path.exists() else {}
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({**known, _key(model): seconds}))
        part.replace(path)


def count() -> int:
    """How many graphs have been compiled in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


@contextlib.contextmanager
def one_of_each(model: nn.Module, recomputed: int) -> Iterator[None]:
    """The model with its first decoder layer alone, and the last where only some are recomputed: what these compile
    serves the others."""
    everything = model.layers
    some = [everything[0], everything[-1]] if 0 < recomputed < len(everything) else [everything[0]]  # type: ignore
    model.layers = nn.ModuleList(some)
    try:
        yield
    finally:
        model.layers = everything
