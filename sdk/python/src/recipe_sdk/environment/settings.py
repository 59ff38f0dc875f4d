"""The attributes of a block, read from a dataclass or a pydantic model: types, defaults, limits and descriptions."""

from __future__ import annotations

import ast
import collections.abc
import dataclasses
import importlib
import inspect
import sys
import textwrap
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_UNSET: Any = object()


class SettingsError(TypeError):
    """The settings class declares what no block can have."""


@dataclass(frozen=True)
class Columns:
    """Connects a setting with a file of rows: its value is a column, a function whose arguments are columns, or a
    number of rows that are kept back, which must leave some."""

    of: str
    """The setting with the file."""
    given: tuple[str, ...] = ()
    """Arguments that a function gets besides columns."""
    left_out: tuple[str, ...] = ()
    """Columns that a function does not get."""
    every: bool = False
    """Whether a function is called with all other columns and all of given by name, so that it must take them."""
    messages: bool = False
    """Whether the column has prompts: each is a text, or a list of messages with role and content."""
    optional: bool = False
    """Whether rows may lack the column, and all of them where the recipe does not name it."""

    def described(self) -> dict[str, Any]:
        out: dict[str, Any] = {"of": self.of}
        out |= {k: list(v) for k, v in (("given", self.given), ("left_out", self.left_out)) if v}
        return out | {k: True for k in ("every", "messages", "optional") if getattr(self, k)}


def setting(
    default: Any = _UNSET, doc: str = "", *, min: float | None = None, max: float | None = None,
    choices: typing.Sequence[str] = (), pattern: str = "", unit: str = "", sensitive: bool = False,
    file: bool = False, columns: Columns | None = None,
) -> Any:  # fmt: skip
    """A field of a settings dataclass with its description and limits. Without a default it is required.

    file: the value is the path of a file or folder, relative to the recipe, whose content counts as part of the value:
    a plan shows a change of it, and apply restarts the block.

    columns: the value names a column of such a file, or a function whose arguments are columns of it, or is a number of
    its rows that are kept back. recipe validate refuses a column that the file lacks, or a number that leaves none."""
    metadata = {"doc": doc, "min": min, "max": max, "enum": tuple(choices), "pattern": pattern, "unit": unit,
                "sensitive": sensitive, "format": "file" if file else "",
                "columns": columns.described() if columns else None}  # fmt: skip
    if default is _UNSET:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: default.copy(), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Code:
    """A setting that names a function in a Python file of the user's, "rewards.py:accuracy", whose hash becomes part of
    the run's record, or in a module, "mylib.rewards:accuracy"."""

    file: Path
    function: str
    original: Path | None = None
    """The user's file, where file is a copy of what it was when the recipe was applied."""
    module: str = ""
    """Its name, where the function is in a module. file is the recipe's folder then."""

    def load(self) -> Any:
        """The function. Its code knows itself by the user's file: it imports and reads what lies beside that."""
        if self.module:
            if str(self.file) not in sys.path:
                sys.path.insert(0, str(self.file))
            return self._of(importlib.import_module(self.module), self.module)
        known_as = self.original or self.file
        if str(known_as.parent) not in sys.path:
            sys.path.insert(0, str(known_as.parent))
        module = types.ModuleType(known_as.stem)
        module.__file__ = str(known_as)
        sys.modules.setdefault(known_as.stem, module)  # dataclasses look themselves up there
        exec(compile(self.file.read_bytes(), str(known_as), "exec"), module.__dict__)
        return self._of(module, known_as.name)

    def _of(self, module: types.ModuleType, name: str) -> Any:
        try:
            return getattr(module, self.function)
        except AttributeError:
            raise SettingsError(f"{name} has no {self.function} after it was imported") from None


@dataclass(frozen=True)
class Reference:
    """A setting that names another inference block, such as a judge: an OpenAI-compatible server."""

    address: str
    base_url: str
    model: str
    api_key: str


@dataclass
class _Field:
    """One field of a dataclass or of a pydantic model."""

    name: str
    kind: Any
    default: Any  # _UNSET: it is required
    doc: str = ""
    limits: dict[str, Any] = dataclasses.field(default_factory=dict)


def schema(cls: type | None) -> dict[str, Any]:
    """The attributes and nested blocks of a settings class, in the form of sdk/spec."""
    attributes, blocks = [], []
    for f in _fields(cls) if cls is not None else ():
        kind, optional = _plain(f.kind)
        if _is_settings(kind):
            blocks.append({"name": f.name, "nesting": "single", "required": f.default is _UNSET and not optional,
                           "schema": {"doc": f.doc, **schema(kind)}})  # fmt: skip
            continue
        element = _element(kind)
        if element is not None and _is_settings(element):
            blocks.append({"name": f.name, "nesting": "list", "schema": {"doc": f.doc, **schema(element)}})
            continue
        attributes.append(_attribute(f, kind, optional))
    one_of = [list(names) for names in getattr(cls, "one_of", ())]
    return {"attributes": attributes, "blocks": blocks} | ({"one_of": one_of} if one_of else {})


def build(cls: type | None, values: dict[str, Any]) -> Any:
    """An instance of a settings class from the block's attributes; those that are null get the class's own default."""
    if cls is None:
        if values:
            raise TypeError(f"the environment has no settings, got {', '.join(map(repr, values))}")
        return None
    given, fields = {}, _fields(cls)
    names = {f.name for f in fields}
    if unknown := [name for name in values if name not in names]:
        known = ", ".join(sorted(names)) or "no settings"
        raise TypeError(f"{cls.__name__} has no {' and no '.join(map(repr, unknown))}; it has {known}")
    for f in fields:
        value = values.get(f.name)
        kind, _ = _plain(f.kind)
        if value is None or (value == [] and _is_settings(_element(kind)) and f.default is not _UNSET):
            continue  # no block of a list says as little as no attribute
        given[f.name] = _value(kind, value)
    return cls(**given)


def _value(kind: Any, value: Any) -> Any:
    if _is_settings(kind):
        return build(kind, value)
    if kind is Path:
        return Path(value)
    if kind is Code:
        if isinstance(value, str):  # of a test
            file, _, function = value.rpartition(":")
            return Code(Path(file), function) if file.endswith(".py") else Code(Path(), function, module=file)
        if value.get("module"):
            return Code(Path(value["file"]), value["function"], module=value["module"])
        return Code(Path(value["file"]), value["function"], Path(value["original"]))
    if kind is Reference:
        return Reference(value["address"], value["base_url"], value["model"], value["api_key"])
    if kind is float:
        return float(value)
    element = _element(kind)
    if element is not None:
        made = [_value(_plain(element)[0], v) for v in value]
        return tuple(made) if typing.get_origin(kind) is tuple else made
    if typing.get_origin(kind) in (dict, collections.abc.Mapping):
        of = _plain(typing.get_args(kind)[1])[0]
        return {k: _value(of, v) for k, v in value.items()}
    return value


def _attribute(f: _Field, kind: Any, optional: bool) -> dict[str, Any]:
    if kind is Reference:
        out: dict[str, Any] = {"name": f.name, "type": "dynamic", "references": ["inference"], "doc": f.doc}
        if f.default is _UNSET and not optional:
            out["required"] = True
        return out
    what, extra = _type(kind, f.name)
    out = {"name": f.name, "type": what, "doc": f.doc, **extra}
    for name, limit in f.limits.items():
        if limit is not None and limit is not False and limit != "" and limit != ():
            out[name] = list(limit) if isinstance(limit, tuple) else limit
    if f.default is _UNSET:
        if not optional:
            out["required"] = True
    elif f.default is not None:
        out["default"] = str(f.default) if isinstance(f.default, Path) else f.default
    return out


def _type(kind: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """The type of an attribute as cty writes it, and what goes with it."""
    simple = {str: "string", bool: "bool", float: "number", Path: "string"}
    if kind in simple:
        return simple[kind], {}
    if kind is int:
        return "number", {"format": "integer"}
    if kind is Code:
        return "string", {"format": "callable"}
    if kind is Any:
        return "dynamic", {}
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal and all(isinstance(a, str) for a in args):
        return "string", {"enum": list(args)}
    element = _element(kind)
    if element is not None:
        inner, extra = _type(_plain(element)[0], name)
        return ["list", inner], extra
    if origin in (dict, collections.abc.Mapping) and args[0] is str:
        inner, extra = _type(_plain(args[1])[0], name)
        if inner == "dynamic":
            return "dynamic", {"format": "map"}
        return ["map", inner], extra
    if kind is dict:
        return "dynamic", {"format": "map"}
    raise SettingsError(
        f"the setting {name} has the type {_show(kind)}; use str, int, float, bool, Path, Literal of texts, list[…], "
        "dict[str, …], Code, Reference, Any, or a dataclass for a nested block"
    )


def _element(kind: Any) -> Any:
    """The type of a list's elements; None: it is no list."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, collections.abc.Sequence) and args:
        return args[0]
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return args[0]
    return str if kind is list else None


def _plain(kind: Any) -> tuple[Any, bool]:
    """A type without Annotated and None, and whether it had None."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        args = [a for a in typing.get_args(kind) if a is not type(None)]
        if len(args) == 1:
            return _plain(args[0])[0], True
    return kind, False


def _show(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


def _is_settings(kind: Any) -> bool:
    if not isinstance(kind, type) or kind in (Code, Reference):
        return False
    return dataclasses.is_dataclass(kind) or hasattr(kind, "model_fields")


def _fields(cls: type) -> list[_Field]:
    hints = typing.get_type_hints(cls, include_extras=True)
    docs = _docstrings(cls)
    if hasattr(cls, "model_fields"):
        return [_of_model(name, hints[name], f, docs) for name, f in cls.model_fields.items()]
    if not dataclasses.is_dataclass(cls):
        raise SettingsError(f"settings is annotated with {_show(cls)}; use a dataclass or a pydantic model")
    out = []
    for f in dataclasses.fields(cls):
        if not f.init:
            continue
        default: Any = _UNSET
        if f.default is not dataclasses.MISSING:
            default = f.default
        elif f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        known = ("min", "max", "enum", "pattern", "unit", "sensitive", "format", "columns")
        limits = {k: v for k, v in f.metadata.items() if k in known}
        out.append(_Field(f.name, hints[f.name], default, f.metadata.get("doc") or docs.get(f.name, ""), limits))
    return out


def _of_model(name: str, kind: Any, f: Any, docs: dict[str, str]) -> _Field:
    """A field of a pydantic model."""
    default = _UNSET if f.is_required() else f.get_default(call_default_factory=True)
    limits: dict[str, Any] = {}
    for m in f.metadata:
        for ours, theirs in (("min", "ge"), ("max", "le"), ("min", "min_length"), ("max", "max_length"),
                             ("pattern", "pattern")):  # fmt: skip
            value = getattr(m, theirs, None)
            if value is not None and not (theirs.endswith("_length") and kind is str):
                limits[ours] = value
    if dataclasses.is_dataclass(default) or hasattr(default, "model_fields"):
        default = None
    return _Field(name, kind, default, f.description or docs.get(name, ""), limits)


def _docstrings(cls: type) -> dict[str, str]:
    """The texts that stand below the fields of a class, by the name of the field."""
    out: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError, SyntaxError, IndexError):
            continue
        if not isinstance(body, ast.ClassDef):
            continue
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
                value = text.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    out[field.target.id] = " ".join(value.value.split())
    return out
