"""Derive from recipes/gsm8k.hcl a recipe that needs no network: random scores instead of the data set.

Everything else stays as the recipe has it: batch, adapters, KL term, placement, transport. What is looked for and not
there is an error, so a changed recipe is not measured as something else.
"""

import json
import re
from pathlib import Path

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "gsm8k.hcl"
ENGINES, TRAINERS = ("vllm", "sglang"), ("grpo", "trl", "verl", "axolotl")
#: Where lines can be added: a block, or an object in it.
PLACES = (*ENGINES, *TRAINERS, *(f"{t}.config" for t in TRAINERS[1:]), "verl.config.actor", "weights")

SCORES = """environment "scores" "gsm8k" {
  inference  = local.policy
  group_size = local.group
  max_tokens = local.max_tokens
}
"""

#: What a machine without a GPU needs, so that the script itself can be tried: lines for blocks.
ON_CPU = {
    "vllm": ['dtype = "float32"', "enforce_eager = true", "cpu_kvcache_space = 1", "max_num_seqs = 64"],
    "sglang": ['dtype = "float32"', "max_total_tokens = 32768", "max_running_requests = 64"],
}
#: What it cannot have, as patterns of lines.
ON_GPU = (r"  placement \{\n(?:    .*\n)+  \}\n", r"  gpu_memory_utilization .*\n", r"  mem_fraction_static .*\n")


def substitute(pattern: str, text: str, by: str, count: int) -> str:
    """text with that many matches of pattern replaced."""
    changed, found = re.subn(pattern, lambda _: by, text, flags=re.MULTILINE)
    if found != count:
        raise SystemExit(f"{RECIPE} has {found} places like {pattern!r}, expected {count}: mend {Path(__file__).name}")
    return changed


def add(place: str, text: str, lines: list[str]) -> str:
    """text with lines at the end of a place, instead of those there that set the same attributes."""
    name, *inner = place.split(".")
    kind = "inference" if name in ENGINES else "sync" if name == "weights" else "trainer"
    at, indent = text.find(f'{kind} "{name}" "policy" {{\n'), ""
    for attribute in inner:
        indent += "  "
        found = re.compile(rf"\n{indent}{attribute} += {{").search(text, at)
        at = found.start() if at >= 0 and found else -1
    if at < 0:
        raise SystemExit(f"{RECIPE} has no {kind} {place}: mend {Path(__file__).name}")
    end = text.index(f"\n{indent}}}\n", at)
    names = "|".join(re.escape(line.partition("=")[0].strip()) for line in lines)
    kept = re.sub(rf"\n{indent}  (?:{names}) += .*", "", text[at:end])
    text, end = text[:at] + kept + text[end:], at + len(kept)
    return text[:end] + "".join(f"\n{indent}  {line}" for line in lines) + text[end:]


def derive(pythons: dict[str, str], environments: dict[str, dict[str, str]], more: dict[str, list[str]],
           max_tokens: int, gpu: int, ranks: int, cpu: bool) -> str:  # fmt: skip
    """The recipe. pythons and environments are of engines and trainers; more are lines for places; gpu is the engine's;
    ranks are those of a trainer, each with a GPU, of which the first is the engine's."""
    text = RECIPE.read_text()
    text = substitute(r'^environment "atropos" "gsm8k" \{\n(?:  .*\n)+\}\n', text, SCORES, 1)
    text = substitute(r"environment\.atropos\.gsm8k", text, "environment.scores.gsm8k", len(TRAINERS))
    text = substitute(r"^  max_tokens = 1024 ", text, f"  max_tokens = {max_tokens} ", 1)
    text = substitute(r'\? \["0"\] :', text, f'? ["{gpu}"] :', 1)
    if cpu:
        counts = (len(ENGINES) + len(TRAINERS), 1, 1)
        for pattern, count in zip(ON_GPU, counts, strict=True):
            text = substitute("^" + pattern, text, "", count)
        text = substitute(r"16 \* local\.group", text, "2 * local.group", 1)
    if ranks > 1:
        engines, trainers = text[: text.index('\ntrainer "')], text[text.index('\ntrainer "') :]
        one = "    gpus    = 1\n    devices = local.shared\n"
        several = f"    gpus    = {ranks}\n    devices = {json.dumps([str(gpu + i) for i in range(ranks)])}\n"
        text = engines + substitute(one, trainers, several, len(TRAINERS))
    for name in (*ENGINES, *TRAINERS):
        lines = [f"runtime {{ python = {json.dumps(pythons[name])} }}",
                 f"environment_variables = {json.dumps(environments[name])}"]  # fmt: skip
        text = add(name, text, lines + (ON_CPU.get(name, []) if cpu else []))
    for place, lines in more.items():
        text = add(place, text, lines)
    return text
