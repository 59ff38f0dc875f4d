import os
import subprocess
import sys

import pytest

GROUPED = """
import atexit, torch.distributed as dist
from recipe_sdk import leave
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
atexit.register(print, "the interpreter was taken down around it")
ENDED
leave(3)
"""


@pytest.mark.parametrize(("ended", "ranks"), [("", "1"), ("dist.destroy_process_group()", "2")],
                         ids=["a library left it", "it has ended"])  # fmt: skip
def test_threads_of_a_group_do_not_abort_the_exit(ended, ranks):
    """They did: "terminate called without an active exception", exit by SIGABRT."""
    found = subprocess.run([sys.executable, "-c", GROUPED.replace("ENDED", ended)], capture_output=True, text=True,
                           timeout=300, env={**os.environ, "WORLD_SIZE": ranks})  # fmt: skip
    assert (found.returncode, found.stdout) == (3, ""), found.stderr
