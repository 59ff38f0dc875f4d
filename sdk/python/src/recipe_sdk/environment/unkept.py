"""Keeps Python from __pycache__ beside an author's files. Packages are compiled once and kept, as always.

A few files are compiled in no time. And Python tells by second and length whether a compiled file is still that of its
source: one changed within the same second, to the same length, would be run as it was. A compiled file that came with
the folder may be of any source: it is not read.

Where a person has allowed some files to run, no other file of their folder is imported."""

from __future__ import annotations

import sys
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType
from typing import Any

INSTALLED = ("site-packages", "dist-packages")
"""Folders that hold packages."""


class Loader(SourceFileLoader):
    """Compiles the source, and neither reads nor keeps what is compiled."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of a module."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class Finder(FileFinder):
    """Finds in an author's folder what was allowed to run."""

    def find_spec(self, fullname: str, target: Any = None) -> ModuleSpec | None:
        """As a finder's; None for a module of Python's own, which a file of the folder must not replace then."""
        spec = super().find_spec(fullname, target)
        if _covered is None or spec is None or spec.origin is None or Path(spec.origin).resolve() in _covered:
            return spec
        if fullname.partition(".")[0] in sys.stdlib_module_names:
            return None
        raise ImportError(f"{spec.origin} was not allowed to run: import it by its name, so that it is among the files "
                          "that are allowed together", name=fullname)  # fmt: skip


_FINDER = Finder.path_hook((Loader, SOURCE_SUFFIXES), (ExtensionFileLoader, EXTENSION_SUFFIXES))
_folders: set[Path] = set()
_covered: set[Path] | None = None


def only(files: list[str]) -> None:
    """From now on only these files are imported from the folders of authors."""
    global _covered
    _covered = {Path(f).resolve() for f in files}


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
