"""Files and folders that a reader sees whole or not at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def replace_directory(temporary: Path, final: Path) -> None:
    """Makes `temporary` appear as `final` in one step; an older `final` goes."""
    sync_tree(temporary)
    old = final.with_name(f".old-{final.name}-{os.getpid()}")
    if final.exists():
        os.replace(final, old)
    os.replace(temporary, final)
    sync_path(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def sync_path(path: Path) -> None:
    """fsync of a file or directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: Path) -> None:
    """fsync of everything below a directory."""
    for directory, _, files in os.walk(path):
        for name in files:
            sync_path(Path(directory) / name)
        sync_path(Path(directory))
