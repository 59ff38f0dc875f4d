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
