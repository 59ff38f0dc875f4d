"""Folders for temporary files, also of processes that were killed."""

import subprocess
import sys
from pathlib import Path

from recipe_sdk.files import LOCK, Temporary

HELD = """
import sys, time
from recipe_sdk.files import Temporary
print(Temporary("recipe-x-").path, flush=True)
time.sleep(600)
"""


def test_folders_of_killed_processes_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    theirs = subprocess.Popen([sys.executable, "-c", HELD.replace("print", f"import tempfile; tempfile.tempdir = "
                              f"{str(tmp_path)!r}; print")], stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert theirs.stdout is not None
        left = Path(theirs.stdout.readline().strip())
        assert left.is_dir() and left.stat().st_mode & 0o777 == 0o700
        (foreign := tmp_path / "recipe-x-foreign").mkdir()
        (link := tmp_path / "recipe-x-link").symlink_to(left)

        Temporary("recipe-x-").close()
        assert left.is_dir(), "its process lives"
    finally:
        theirs.kill()
        theirs.wait()
    (left / "store").write_text("of a killed one")
    mine = Temporary("recipe-x-")
    assert not left.exists() and foreign.is_dir() and link.is_symlink() and (mine.path / LOCK).exists()
    mine.close()
    assert sorted(tmp_path.iterdir()) == [foreign, link]
