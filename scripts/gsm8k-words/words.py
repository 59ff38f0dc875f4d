"""Writes word problems in GSM8K's format to train.jsonl and test.jsonl (584 and 64 of them, none in both)."""

import itertools
import json
import random

NAMES = ["Tom", "Ann", "Sam", "Mia", "Ben", "Eva"]
THINGS = ["apples", "books", "coins", "pens", "eggs", "cards"]


def problem(name, thing, a, b):
    return {
        "question": f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?",
        "answer": f"{a}+{b}=<<{a}+{b}={a + b}>>{a + b}\n#### {a + b}",
    }


problems = [problem(*parts) for parts in itertools.product(NAMES, THINGS, range(1, 7), range(1, 4))]
random.Random(0).shuffle(problems)
for path, part in (("test.jsonl", problems[:64]), ("train.jsonl", problems[64:])):
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(p) + "\n" for p in part)
