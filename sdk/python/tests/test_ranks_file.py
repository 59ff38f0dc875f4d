"""The ranks of one machine find each other in a file: no store on TCP, which every user could read and write."""

import os
import subprocess
import sys

RANK = """
import torch
from recipe_sdk.ranks import Ranks
ranks = Ranks(torch.device("cpu"), 60)
print(ranks.gather(ranks.rank))
ranks.close()
"""


def test_ranks_meet_in_a_file(tmp_path):
    gone = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE")
    env = {k: v for k, v in os.environ.items() if k not in gone}
    env |= {"RECIPE_RANKS_FILE": str(tmp_path / "ranks"), "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    both = [
        subprocess.Popen([sys.executable, "-c", RANK], env={**env, "RANK": str(n)}, stdout=subprocess.PIPE, text=True)
        for n in (0, 1)
    ]
    assert [p.communicate(timeout=600)[0].strip() for p in both] == ["[0, 1]", "[0, 1]"]


ALONE = """
from datetime import timedelta

import torch
from recipe_sdk.ranks import alone

alone("gloo", timedelta(seconds=60))
x = torch.ones(1)
torch.distributed.all_reduce(x)
print(torch.distributed.get_world_size(), x.item())
"""


def test_a_group_of_one_needs_no_launcher():
    names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK")
    env = {k: v for k, v in os.environ.items() if k not in names} | {"GLOO_SOCKET_IFNAME": "lo"}
    found = subprocess.run([sys.executable, "-c", ALONE], env=env, capture_output=True, text=True, timeout=600)
    assert found.stdout.split() == ["1", "1.0"], found.stderr
