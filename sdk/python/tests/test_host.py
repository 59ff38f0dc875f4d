"""Where weights are: two pods on one node reach neither each other's memory nor each other's loopback."""

import subprocess
import sys

import pytest

SAY = "from recipe_sdk import ipc; from recipe_sdk.receive import handles; print(ipc.host() + '|' + handles.machine())"
APART = ["unshare", "--user", "--map-root-user", "--pid", "--net", "--fork"]


def said(*before: str) -> list[str]:
    out = subprocess.run([*before, sys.executable, "-c", SAY], capture_output=True, text=True, timeout=300, check=True)
    return out.stdout.strip().split("|")


def test_another_container_is_another_host():
    try:
        tried = subprocess.run([*APART, "true"], capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if tried.returncode:
        pytest.skip(f"no namespaces can be made here: {tried.stderr}")
    here, there = said(), said(*APART)
    assert here[0] == here[1], "trainer and server of one machine name it alike"
    assert there[0] == there[1]
    assert here != there
