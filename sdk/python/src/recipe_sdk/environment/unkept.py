"""Keeps Python from writing __pycache__ beside an author's files. Packages are compiled once and kept, as always.

A few files are compiled in no time. And Python tells by second and length whether a compiled file is still that of its
source: one changed within the same second, to the same length, would be run as it was."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Any

INSTALLED = ("site-packages", "dist-packages")
"""Folders that hold packages."""


class Loader(SourceFileLoader):
    """Keeps nothing of what it compiles."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """What a loader writes compiled code with."""


_FINDER = FileFinder.path_hook((Loader, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES))
_folders: set[Path] = set()


def below(folder: Path) -> None:
    """From now on nothing is kept of what is imported from a folder, except of packages that are installed there."""
    _folders.add(folder.resolve())
    if _hook not in sys.path_hooks:
        sys.path_hooks.insert(0, _hook)
    for entry in [e for e in sys.path_importer_cache if _is_within(e)]:
        del sys.path_importer_cache[entry]


def _hook(entry: str) -> Any:
    if not _is_within(entry):
        raise ImportError("it is in no folder of an author's", path=entry)
    return _FINDER(entry)


def _is_within(entry: str) -> bool:
    path = Path(entry).resolve()
    return any(
        path.is_relative_to(folder) and not any(part in INSTALLED for part in path.relative_to(folder).parts)
        for folder in _folders
    )
