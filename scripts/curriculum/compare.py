"""Count the rollouts that mixture.hcl needs with a curriculum and without, to the same held-out accuracy.

usage: compare.py --recipe BIN --out DIR [--seeds 0,1,2] [--steps 200]

For each seed the accuracy to reach is the lower one of both runs' best. A table is printed and DIR/result.json written.
"""

import argparse
import json
import random
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
GROUP = 16  # mixture.hcl's group_size
HELD_OUT = 200  # its eval_rows: the first rows
KINDS = ("possible", "easy", "impossible")


def rows() -> str:
    """The dataset as JSON lines: held-out sums, then a third of each kind."""
    pairs = [(a, b) for a in range(50) for b in range(50)]
    random.Random(7).shuffle(pairs)
    return "".join(
        json.dumps(
            {
                "prompt": f"{a:02d}+{b:02d}=",
                "answer": str(a + b),
                "kind": "possible" if i < HELD_OUT else KINDS[i % 3],
            }
        )
        + "\n"
        for i, (a, b) in enumerate(pairs)
    )


def run(recipe: Path, folder: Path, seed: int, steps: int, curriculum: bool) -> list[tuple[float, int]]:
    """The held-out accuracies of one run, each with the rollouts that were sampled for training by then."""
    folder.mkdir(parents=True)
    for name in ("mixture.hcl", "rewards.py"):
        shutil.copy(HERE / name, folder)
    (folder / "rows.jsonl").write_text(rows())
    command = [str(recipe), "apply", "-y", "--json", "mixture.hcl"]
    for name, value in {"seed": seed, "steps": steps, "curriculum": curriculum}.items():
        command += ["--var", f"{name}={json.dumps(value)}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} in {folder} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return curve(done.stdout)


def curve(events: str) -> list[tuple[float, int]]:
    """The results of evaluations, each with the rollouts of the reports before it."""
    out, rollouts = [], 0.0
    for event in map(json.loads, events.splitlines()):
        metrics = event.get("metrics", {})
        if event["type"] == "metrics" and event["address"].startswith("environment."):
            rollouts += metrics.get("groups", 0) * GROUP
        if event["type"] == "evaluation" and "pass@1" in metrics:
            out.append((metrics["pass@1"], int(rollouts)))
    return out


def needed(found: list[tuple[float, int]], accuracy: float) -> int:
    return next(rollouts for reached, rollouts in found if reached >= accuracy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, required=True, help="the recipe program")
    parser.add_argument("--out", type=Path, required=True, help="new folder for the runs and result.json")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    results = []
    print("| seed | accuracy before | reached by both | rollouts without | with | ratio |\n|---|---|---|---|---|---|")
    for seed in map(int, options.seeds.split(",")):
        both = [
            run(options.recipe.resolve(), options.out.resolve() / f"{seed}-{name}", seed, options.steps, name == "with")
            for name in ("without", "with")
        ]
        accuracy = min(max(reached for reached, _ in found) for found in both)
        without, with_it = (needed(found, accuracy) for found in both)
        results.append({"seed": seed, "accuracy": accuracy, "without": both[0], "with": both[1]})
        (options.out / "result.json").write_text(json.dumps(results, indent=1))
        before = both[0][0][0]
        print(
            f"| {seed} | {before:.3f} | {accuracy:.3f} | {without} | {with_it} | {with_it / without:.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
