"""What the record of samples costs a trainer in Python: milliseconds of processor time for each batch.

PYTHONPATH=sdk/python/src python plugins/trajectories/bench/trained.py URL BATCHES (a server with a registered trainer
and that many batches in its queue; needs torch)
"""

import sys
import time

import torch

from recipe_sdk import GroupBatch, ReadOptions
from recipe_sdk.api import Client
from recipe_sdk.groups import read_group
from recipe_sdk.record import Recorder

torch.set_num_threads(1)
url, batches = sys.argv[1], int(sys.argv[2])
client = Client(url, None, timeout=60)
recorder = Recorder(client)
spent = 0.0
for step in range(1, batches + 1):
    answer = client.call("GET", "/batch?lease=60s")
    client.call("POST", f"/batch/{answer['id']}/ack", {})
    raw = answer["batch"]
    groups = [read_group(g, ReadOptions()) for g in raw]
    batch = GroupBatch(step, step, groups, raw, lease=answer["id"], places=list(range(len(raw))))
    tokens = [len(c.positions) for g in groups for c in g.completions]
    logprobs = -torch.empty(sum(tokens)).exponential_()
    advantages = torch.repeat_interleave(torch.randn(len(tokens)), torch.tensor(tokens))
    began = time.process_time()
    recorder.post(batch, step, {"logprobs": logprobs, "advantages": advantages})
    recorder.close()
    spent += time.process_time() - began
    if not recorder.wanted:
        sys.exit(f"the report of batch {step} was not recorded")
print(1e3 * spent / batches)
