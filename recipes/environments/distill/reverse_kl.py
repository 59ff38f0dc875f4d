"""How far students are from their teacher on held-out prompts: the mean over tokens of KL(student | teacher), on texts
that each student samples itself. python reverse_kl.py PROMPTS.jsonl ROWS TEACHER STUDENT …

The first ROWS prompts are those that `eval_rows` of the environment holds out. The KL of a position is exact, over the
whole vocabulary. Prints one line of JSON."""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SAMPLES, LENGTH = 4, 16


@torch.no_grad()
def sampled(student, ids: torch.Tensor, stop: int) -> torch.Tensor:
    """(SAMPLES, T) the prompt and what the student says to it, at temperature 1."""
    ids = ids.repeat(SAMPLES, 1)
    return student.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
        max_new_tokens=LENGTH, pad_token_id=stop,
    )  # fmt: skip


@torch.no_grad()
def reverse_kl(student, teacher, ids: torch.Tensor, prompt: int, stop: int) -> tuple[float, int]:
    """Its sum over the sampled tokens, and how many they are."""
    s, t = (m(ids).logits[:, prompt - 1 : -1].double().log_softmax(-1) for m in (student, teacher))
    each = (s.exp() * (s - t)).sum(-1)
    ends = (ids[:, prompt:] == stop).int()
    counted = (ends.cumsum(1) - ends) == 0  # up to the first end
    return float(each[counted].sum()), int(counted.sum())


def main(path: str, rows: str, teacher_path: str, *students: str) -> None:
    with open(path, encoding="utf-8") as f:
        prompts = [json.loads(line)["prompt"] for line in f][: int(rows)]
    tokenizer = AutoTokenizer.from_pretrained(teacher_path)
    load = lambda p: AutoModelForCausalLM.from_pretrained(p, dtype=torch.float32).eval()  # noqa: E731
    teacher, stop, found = load(teacher_path), tokenizer.eos_token_id, []
    for one in students:
        torch.manual_seed(0)
        student, total, tokens = load(one), 0.0, 0
        for prompt in prompts:
            ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
            kl, n = reverse_kl(student, teacher, sampled(student, ids, stop), ids.shape[1], stop)
            total, tokens = total + kl, tokens + n
        found.append({"student": one, "reverse_kl": total / tokens, "tokens": tokens})
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
