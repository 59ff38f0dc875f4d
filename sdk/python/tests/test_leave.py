import subprocess
import sys

GROUPED = """
import atexit, torch.distributed as dist
from recipe_sdk import leave
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
atexit.register(print, "the interpreter was taken down around it")
leave(3)
"""


def test_a_process_group_that_a_library_left_does_not_abort_the_end():
    """Torch's threads of it may: "terminate called without an active exception", exit by SIGABRT."""
    ended = subprocess.run([sys.executable, "-c", GROUPED], capture_output=True, text=True, timeout=300)
    assert (ended.returncode, ended.stdout) == (3, ""), ended.stderr
