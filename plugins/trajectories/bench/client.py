"""What a trainer in Python pays from the bytes of a /batch answer to tensors, as JSON and as an Arrow stream.

PYTHONPATH=sdk/python/src python plugins/trajectories/bench/client.py URL (a server with an empty queue; needs torch and
pyarrow)
"""

import json
import pickle
import random
import sys
import time
import urllib.request

import torch

from recipe_sdk import Batch, GroupBatch, ReadOptions, columns
from recipe_sdk.groups import read_group


def call(url, path, body=None, accept="application/json"):
    headers = {"Content-Type": "application/json", "Accept": accept, "Accept-Encoding": "identity"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers)) as reply:
        return reply.read()


def group(tokens):
    ids = [[random.randrange(150_000) for _ in range(tokens)] for _ in range(8)]
    masks = [[-100] * (tokens // 4) + s[tokens // 4 :] for s in ids]
    logprobs = [[1.0] * (tokens // 4) + [-random.expovariate(1) for _ in s[tokens // 4 :]] for s in ids]
    return {
        "tokens": ids,
        "masks": masks,
        "scores": [random.random() for _ in ids],
        "inference_logprobs": logprobs,
        "env_id": 0,
    }


def cost(what):
    """Milliseconds of processor time of one call of what, the median of seven, and what it returned."""
    times = []
    for _ in range(7):
        began = time.process_time()
        result = what()
        times.append(time.process_time() - began)
    return sorted(times)[3] * 1e3, result


def path(came):
    """The costs of an answer's way to tensors, and the tensors."""
    decode, answer = cost(came.decode)
    share, raw = cost(lambda: pickle.loads(pickle.dumps(answer["batch"])))
    read, known = cost(lambda: [read_group(g, ReadOptions()) for g in raw])
    build, batch = cost(lambda: Batch.build(GroupBatch(0, 1, known, raw)))
    return (decode, share, read, build, decode + read + build), batch


def measure(url, tokens, groups):
    call(
        url,
        "/register",
        {"wandb_group": "", "batch_size": 8 * groups, "max_token_len": 9, "checkpoint_dir": "", "num_steps": 9},
    )
    for _ in range(groups):
        call(url, "/scored_data", group(tokens))
    built = []
    for form, accept in (("json", "application/json"), ("arrow", columns.CONTENT_TYPE)):
        came = columns.Encoded(form, call(url, "/batch?lease=1h", accept=accept))
        times, batch = path(came)
        built.append(batch)
        shown = " | ".join(f"{t:.1f}" for t in times)
        print(f"| {groups} groups of 8 × {tokens} | {form} | {len(came.raw) / 1e6:.2f} MB | {shown} |")
        call(url, f"/batch/{came.decode()['id']}/release", {})
    for name in ("tokens", "trained", "inference_logprobs", "advantages"):
        assert torch.equal(getattr(built[0], name), getattr(built[1], name)), name
    call(url, "/reset_data")


torch.set_num_threads(1)
print("| batch | form | size | decode | to a rank | read | tensors | sum on one rank, ms |\n|" + "---|" * 8)
measure(sys.argv[1], 512, 32)
measure(sys.argv[1], 4096, 8)
