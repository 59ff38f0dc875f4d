"""Finds the environment in a Python file, and says where its mistakes are."""

from __future__ import annotations

import bdb
import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import traceback
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

from . import unkept
from .base import Environment
from .tools import tools_of

PACKAGE = Path(__file__).resolve().parent
_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


#: Characters of an exception's text, and frames, that are reported: an exception may quote all of its input.
LONGEST, FRAMES = 4000, 30


class LoadError(Exception):
    """The file holds no environment that can be used."""


def module_of(source: str, original: str = "") -> ModuleType:
    """Imports a file, or a module by name. original is the path under which a copy's code knows itself."""
    if not source.endswith(".py"):
        return importlib.import_module(source)
    path = Path(source).resolve()
    known_as = Path(original).resolve() if original else path
    for folder in (str(known_as.parent), str(path.parent)):
        unkept.below(Path(folder))
        if folder not in sys.path:
            sys.path.insert(0, folder)
    name = known_as.stem if known_as.stem.isidentifier() else re.sub(r"\W", "_", "_" + known_as.stem)
    spec = importlib.util.spec_from_file_location(name, path, loader=unkept.Loader(name, str(path)))
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(known_as)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def environment_of(module: ModuleType, wanted: str = "") -> type[Environment]:
    """The class of a module that derives from Environment; of several the one that is called like the plugin."""
    found = [v for v in vars(module).values() if inspect.isclass(v) and issubclass(v, Environment)
             and v is not Environment and v.__module__ == module.__name__]  # fmt: skip
    found = list(dict.fromkeys(found))
    if len(found) > 1:
        named = [c for c in found if snake(c.__name__) == wanted]
        if len(named) != 1:
            names = ", ".join(c.__name__ for c in found)
            raise LoadError(f"it has several environments ({names}) and none is called like the plugin {wanted!r}")
        found = named
    if not found:
        raise LoadError("it has no class that derives from recipe_sdk.Environment")
    cls = found[0]
    if hasattr(cls, "judge"):  # its tasks and rollouts are made by a plugin in Go
        return cls
    if cls.next is Environment.next:
        raise LoadError(f"the class {cls.__name__} has no method next")
    if cls.score is Environment.score and not hasattr(cls, "rollout"):
        raise LoadError(f"the class {cls.__name__} has no method score")
    if isinstance(cls.reads, str):
        raise LoadError(f"the class {cls.__name__} has reads = {cls.reads!r}; expected names: reads = ({cls.reads!r},)")
    if cls.settings is not None and settings_of(cls) is None:
        raise LoadError(f"the class {cls.__name__} has settings = …, which declares no attributes; write a type, "
                        "as in settings: Settings")  # fmt: skip
    for name, least in (("workers", 1), ("processes", 0)):
        count = getattr(cls, name)
        if not isinstance(count, int) or count < least:
            wanted = f"a whole number, {least} or more"
            raise LoadError(f"the class {cls.__name__} has {name} = {count!r}; expected {wanted}")
    if cls.processes and rolls_out(cls):
        raise LoadError(f"the class {cls.__name__} has processes, and rollouts, which run in the worker itself; "
                        "leave one of them out")  # fmt: skip
    return cls


def rolls_out(cls: type[Environment]) -> bool:
    """Whether the class has rollouts of several turns: its own, or with tools."""
    return hasattr(cls, "rollout") or bool(tools_of(cls))


def snake(name: str) -> str:
    """WordLadder → word_ladder."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def settings_of(cls: type[Environment]) -> Any:
    """The type with which a class annotates settings; None when it has none."""
    for base in cls.__mro__:
        if base is Environment:
            return None
        if "settings" in getattr(base, "__annotations__", {}):
            return typing.get_type_hints(base)["settings"]
    return None


def imported_from(folder: Path) -> list[str]:
    """The files below a folder that are imported now."""
    out = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py"):
            continue
        path = Path(file).resolve()
        if path.is_relative_to(folder) and not any(p in unkept.INSTALLED for p in path.parts):
            out.add(str(path.relative_to(folder)))
    return sorted(out)


#: Attribute of exceptions whose text has data of the call: what they are counted as, instead of by type and line.
COUNTED_AS = "_recipe_counted_as"


def problem(error: BaseException) -> dict[str, Any]:
    """An exception for the plugin process: its text, and the author's line that raised it."""
    within = getattr(error, "exceptions", ())  # of an ExceptionGroup: what went wrong is the first one in it
    if within and isinstance(within[0], BaseException):
        return problem(within[0])
    trace = traceback.extract_tb(error.__traceback__)
    own = [f for f in trace if not ours(f.filename)]
    out: dict[str, Any] = {"message": _text(error), "type": type(error).__name__}
    if isinstance(counted := getattr(error, COUNTED_AS, None), str):
        out["counted_as"] = counted[:100]
    if isinstance(error, SyntaxError) and error.filename:
        out.update(file=error.filename, line=error.lineno or 0)
        if error.text:
            out["code"] = error.text.strip()
    elif own:
        here = [f for f in own if not installed(f.filename)] or own
        out.update(file=here[-1].filename, line=here[-1].lineno or 0, code=(here[-1].line or "").strip())
        if isinstance(error, SystemExit):  # the frames behind that line are of what ends programs, such as argparse
            out["message"] += _who_ended(own)
            return out
        out["message"] += _relative(error, Path(here[-1].filename).parent)
        out["trace"] = "".join(traceback.format_list([_plain(f) for f in own[-FRAMES:]])).rstrip()
    return out


#: Modules that read the arguments of a program, and end it when they are not as declared.
PARSERS = ("argparse", "optparse", "click", "fire", "absl")


def _who_ended(frames: list[traceback.FrameSummary]) -> str:
    """What to do where a parser of arguments has ended the program."""
    for frame in frames:
        for name in Path(frame.filename).with_suffix("").parts:
            if name in PARSERS:
                what = "read arguments of a program, which has none here"
                return f'. {name} {what}: call it below if __name__ == "__main__"'
    return ""


def _relative(error: BaseException, folder: Path) -> str:
    """Where a file was looked for that is not there, and that has a relative name."""
    name = getattr(error, "filename", None)
    if not isinstance(error, FileNotFoundError) or not isinstance(name, str) or not name or os.path.isabs(name):
        return ""
    try:
        where = f". It was looked for in the working folder {os.getcwd()}"
        if folder.samefile(os.getcwd()):
            return where
        found = "it is" if (folder / name).exists() else "for a file"
    except (OSError, ValueError):  # a folder that is gone, or the file of code that is in none
        return ""
    return f"{where}; {found} in {folder}: Path(__file__).parent / {name!r}"


def _plain(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    """A frame without the columns of its expression, for which a line of carets would be printed."""
    return traceback.FrameSummary(frame.filename, frame.lineno, frame.name, line=frame.line)


def ours(filename: str) -> bool:
    """Whether a frame belongs to this package or to Python's own machinery."""
    if filename.startswith("<frozen"):
        return True
    path = Path(filename)
    return PACKAGE in path.parents or "asyncio" in path.parts or path.parts[-2:] == ("futures", "thread.py")


def installed(filename: str) -> bool:
    """Whether a file belongs to Python or to an installed package."""
    return filename.startswith(_INSTALLED)


def _text(error: BaseException) -> str:
    try:
        said = _said(error)
    except Exception as e:  # whoever asked would wait for ever for an answer
        said = f"(its own text cannot be shown: {type(e).__name__})"
    if len(said) > LONGEST:
        said = f"{said[: LONGEST // 2]} [… {len(said) - LONGEST} characters left out …] {said[-LONGEST // 2 :]}"
    if isinstance(error, LoadError):
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _said(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it asked the program to end{'' if error.code is None else f', with {error.code!r}'}"
    if isinstance(error, bdb.BdbQuit):
        return "a debugger was started (breakpoint() or pdb), which has no terminal here: remove it"
    if isinstance(error, SyntaxError):
        return error.msg or str(error)
    return str(error)
