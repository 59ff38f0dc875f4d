"""Log-probabilities of a reference that a server has, against those of a second copy in the trainer: MODEL URL KEY."""

import json
import sys
import tempfile

import torch
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.ranks import Ranks
from transformers import AutoTokenizer
from worker import batch, config, model, optim
from worker.memory import Memory
from worker.step import Stepper

path, url, key = sys.argv[1:]
torch.set_num_threads(1)
TEXTS = [
    ("What is the capital of France? ", "The capital of France is Paris, which lies on the river Seine."),
    ("Count to ten: ", "one, two, three, four, five, six, seven, eight, nine, ten."),
    ("def add(a, b):", "\n    return a + b\n\n\nprint(add(1, 2))\n"),
    ("Zurich ", "xqzt 17 ;; unlikely / tokens \u00e9\u00df\u4e2d here"),
    ("A", " b"),
]
tokenizer = AutoTokenizer.from_pretrained(path)
group = {"tokens": [], "masks": [], "scores": []}
for prompt, answer in TEXTS:
    a, b = tokenizer(prompt)["input_ids"], tokenizer(answer)["input_ids"]
    group["tokens"].append(a + b)
    group["masks"].append([-100] * len(a) + b)
    group["scores"].append(0.0)
b = batch.build([read_group(group, ReadOptions())])


def stepper(**reference):
    c = config.from_dict({
        "model": {"path": path, "dtype": "float32", "compute_dtype": "float32", "device": "cpu"},
        "data": {"url": "http://unused"}, "kl": {"coefficient": 0.1}, "reference": reference,
        "checkpoint_dir": tempfile.mkdtemp(), "events_file": None,
    })  # fmt: skip
    ranks = Ranks(model.device_of(c))
    policy, _ = model.load_policy(c, ranks.device)
    return Stepper(
        c, policy, model.Reference(c, policy, ranks.device), optim.build(c, policy.parameters()), ranks, Memory()
    )


loaded = stepper(path=path).reference_scores(b)
s = stepper(inference="inference.vllm.teacher", url=url, token=key, served_model="policy")
served = s.taught(s.ask_teacher(b))
apart = (served - loaded).abs()
print(json.dumps({
    "tokens": b.size, "difference": float(apart.max()), "mean": float(apart.mean()),
    "shifted": float((served.roll(1) - loaded).abs().max()), "copies": int(s.reference.copy is not None),
}))  # fmt: skip
