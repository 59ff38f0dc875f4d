"""Typed, described configuration values: frozen dataclasses from JSON, with every mistake reported at once."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from typing import Any


class ConfigError(ValueError):
    """The configuration file is wrong; the text lists every mistake, one a line. setting: the one that it is about, by
    its name there, where the text does not list it."""

    def __init__(self, message: str, setting: str = ""):
        super().__init__(message)
        self.setting = setting

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.setting)


def option(
    default: Any,
    text: str,
    *,
    choices: tuple[Any, ...] = (),
    live: bool = False,
    least: float | None = None,
    off: float | None = None,
) -> Any:
    """A field with its meaning. live: `POST /update` may change it while the worker runs. off: the number that means
    null, where a recipe has no other way to say "none"."""
    metadata = {"text": text, "choices": choices, "live": live, "least": least, "off": off}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def section(cls: type, text: str) -> Any:
    """A nested group of options."""
    return dataclasses.field(default_factory=cls, metadata={"text": text, "section": True})


def _fits(value: Any, kind: Any) -> Any:
    """value as `kind`, or a TypeError that says what was expected."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        return _fits(value, next(a for a in args if a is not type(None)))
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise TypeError("a list")
        if args[-1] is Ellipsis:
            return tuple(_fits(v, args[0]) for v in value)
        if len(value) != len(args):
            raise TypeError(f"a list of {len(args)}")
        return tuple(_fits(v, a) for v, a in zip(value, args, strict=True))
    if origin is dict:  # free: whoever reads it checks it
        if not isinstance(value, dict):
            raise TypeError("an object")
        return value
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise TypeError("an object")
        errors: list[str] = []
        built = read(kind, value, "", errors)
        if errors:
            raise TypeError(f"valid ({'; '.join(errors)})")
        return built
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise TypeError({str: "a string", int: "a whole number", float: "a number", bool: "true or false"}[kind])
    return value


def read(cls: Any, given: dict[str, Any], path: str, errors: list[str]) -> Any:
    """An instance of the dataclass from JSON; appends a line to errors for every unknown key and bad value."""
    hints, known = typing.get_type_hints(cls), {f.name: f for f in dataclasses.fields(cls)}
    for key in sorted(set(given) - set(known)):
        near = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
        errors.append(f"{path}{key}: unknown setting; {hint}")
    values = {}
    for name, f in known.items():
        if name not in given:
            if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
                errors.append(f"{path}{name}: required ({f.metadata.get('text', '')})")
            continue
        value = given[name]
        if f.metadata.get("section"):
            if not isinstance(value, dict):
                errors.append(f"{path}{name}: expected an object, got {value!r}")
                continue
            values[name] = read(hints[name], value, f"{path}{name}.", errors)
            continue
        try:
            value = _fits(value, hints[name])
        except TypeError as e:
            errors.append(f"{path}{name}: expected {e}, got {value!r}")
            continue
        choices, least = f.metadata.get("choices"), f.metadata.get("least")
        if value is not None and value == f.metadata.get("off"):
            value = None
        if choices and value is not None and value not in choices:
            near = difflib.get_close_matches(str(value), [str(c) for c in choices], 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            errors.append(f"{path}{name}: expected one of {', '.join(map(str, choices))}, got {value!r}{hint}")
        elif least is not None and isinstance(value, (int, float)) and value < least:
            errors.append(f"{path}{name}: expected at least {least}, got {value}")
        values[name] = value
    required = [n for n, f in known.items() if n not in values and f.default is dataclasses.MISSING
                and f.default_factory is dataclasses.MISSING]  # fmt: skip
    return None if required else cls(**values)


def describe(cls: type, path: str = "") -> list[dict[str, Any]]:
    """One entry per setting: name, type, default, description, and where there are any: required, choices, least, off,
    length (of a list), live, items (the settings of each entry of a list of objects)."""
    out, hints = [], typing.get_type_hints(cls)
    for f in dataclasses.fields(cls):
        if f.metadata.get("section"):
            out.extend(describe(hints[f.name], f"{path}{f.name}."))
            continue
        default = f.default if f.default is not dataclasses.MISSING else None
        if f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        kind = hints[f.name]
        entry = {
            "name": f"{path}{f.name}", "default": default,
            "type": kind.__name__ if isinstance(kind, type) else str(kind),
            "required": f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
            "description": f.metadata.get("text", ""), "choices": list(f.metadata.get("choices", ())),
            "least": f.metadata.get("least"), "off": f.metadata.get("off"), "live": bool(f.metadata.get("live")),
        }  # fmt: skip
        if typing.get_origin(kind) is tuple and dataclasses.is_dataclass(item := typing.get_args(kind)[0]):
            entry["type"], entry["items"] = "list of objects", describe(typing.cast(type, item))
        entry["length"] = _length(kind)
        given = {k: v for k, v in entry.items() if v is not None and v is not False and v != []}
        out.append({**given, "default": default})
    return out


def sections(cls: type) -> dict[str, str]:
    """The text of each section, by name."""
    return {f.name: f.metadata["text"] for f in dataclasses.fields(cls) if f.metadata.get("section")}


def _length(kind: Any) -> int | None:
    """How many entries a list of this type has; None: any number."""
    for one in (kind, *typing.get_args(kind)):
        if typing.get_origin(one) is tuple and typing.get_args(one)[-1] is not Ellipsis:
            return len(typing.get_args(one))
    return None


def merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """base with change laid over it, section by section."""
    out = dict(base)
    for key, value in change.items():
        nested = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merge(out[key], value) if nested else value
    return out


def changed(base: Any, other: Any, path: str = "") -> list[tuple[str, bool]]:
    """(name, live) of every setting that differs between two instances."""
    out: list[tuple[str, bool]] = []
    for f in dataclasses.fields(base):
        a, b = getattr(base, f.name), getattr(other, f.name)
        if f.metadata.get("section"):
            out.extend(changed(a, b, f"{path}{f.name}."))
        elif a != b:
            out.append((f"{path}{f.name}", bool(f.metadata.get("live"))))
    return out
