"""The calls of Atropos's example trainer, in its order: wait for the server, register, poll for batches.

usage: example_trainer.py URL STEPS
Exits 0 when STEPS batches of the right size have come, each group complete.
"""

import sys
import time

import requests

BATCH_SIZE = 16


def main(url: str, steps: int) -> int:
    for _ in range(30):
        try:
            if requests.get(f"{url}/info", timeout=2).status_code == 200:
                break
        except requests.exceptions.ConnectionError:
            time.sleep(1)
    reply = requests.post(
        f"{url}/register",
        json={
            "wandb_group": "",
            "wandb_project": "",
            "batch_size": BATCH_SIZE,
            "max_token_len": 64,
            "starting_step": 0,
            "checkpoint_dir": "checkpoints",
            "save_checkpoint_interval": 3,
            "num_steps": steps,
        },
        timeout=10,
    )
    reply.raise_for_status()
    assert "uuid" in reply.json(), reply.text
    taken = 0
    deadline = time.time() + 120
    while taken < steps:
        if time.time() > deadline:
            print(f"only {taken} of {steps} batches came within 120 s")
            return 1
        data = requests.get(f"{url}/batch", timeout=10).json()
        assert data.get("status") != "error", data
        if data["batch"] is None:
            time.sleep(1)
            continue
        batch = data["batch"]
        assert sum(len(item["tokens"]) for item in batch) == BATCH_SIZE, batch
        for item in batch:
            # What the trainer's padding does with a group.
            for tokens, mask, logprobs in zip(
                item["tokens"], item["masks"], item["inference_logprobs"], strict=True
            ):
                assert len(tokens) == len(mask) == len(logprobs)
            assert item["env_id"] == 0 and len(item["scores"]) == len(item["tokens"])
            assert item["overrides"] is None or isinstance(item["overrides"], list)
        taken += 1
    print(f"{taken} batches")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
