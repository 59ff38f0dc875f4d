"""How long a trainer in Python takes to turn a /batch answer into lists, as JSON and as an Arrow stream.

PYTHONPATH=sdk/python/src python plugins/trajectories/bench/client.py URL (a server with an empty queue; needs pyarrow)
"""

import json
import random
import sys
import time
import urllib.request

from recipe_sdk import columns


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


def measure(url, tokens, groups):
    call(
        url,
        "/register",
        {"wandb_group": "", "batch_size": 8 * groups, "max_token_len": 9, "checkpoint_dir": "", "num_steps": 9},
    )
    for _ in range(groups):
        call(url, "/scored_data", group(tokens))
    answers = []
    for accept in ("application/json", columns.CONTENT_TYPE):
        raw = call(url, "/batch?lease=1h", accept=accept)
        read = columns.decode if accept == columns.CONTENT_TYPE else json.loads
        best = []
        for _ in range(7):
            began = time.process_time()
            answer = read(raw)
            best.append(time.process_time() - began)
        best.sort()
        answers.append(answer["batch"])
        print(f"| {groups} groups of 8 × {tokens} | {accept} | {len(raw) / 1e6:.2f} MB | {best[3] * 1e3:.1f} ms |")
        call(url, f"/batch/{answer['id']}/release", {})
    assert answers[0] == answers[1]
    call(url, "/reset_data")


measure(sys.argv[1], 512, 32)
measure(sys.argv[1], 4096, 8)
