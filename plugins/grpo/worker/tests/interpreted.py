"""Triton's kernels without a GPU: a program that runs in Triton's interpreter."""

import importlib.util
import os
import subprocess
import sys

import pytest

#: Where triton lies, when it is not installed here: scripts/test-python.sh says it.
FOLDER = os.environ.get("RECIPE_TRITON", "")
needs_triton = pytest.mark.skipif(
    not FOLDER and not importlib.util.find_spec("triton"), reason="triton is not there (RECIPE_TRITON)"
)


def run(program: str) -> str:
    """The last line that the program prints."""
    path = os.pathsep.join(filter(None, [*sys.path, FOLDER]))
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split("\n")[-2]
