"""Tokens a second of one server of vLLM or SGLang, when the gateway decides how many sequences it gets at once,
beside fixed numbers.

usage: concurrency.py --recipe BIN --model DIR --python PYTHON --out DIR [--engine vllm|sglang]
[--shape short|long|mixed] [--fixed N,…] [--cache BYTES] [--warm S] [--measure S] [--cpu]

A client keeps 1,024 requests at the gateway, of random prompts and lengths. Each number of --fixed, no limit, and 0
(the gateway decides) is set while the server runs (`concurrency` of the block). After --warm seconds the tokens and the
preemptions are counted for --measure seconds, from the engine's counters, which the gateway reads each second.
DIR/result.json has all figures, the limits that the gateway chose among them. With --cpu little is asked for, which
tests this script.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import aiohttp

HERE = Path(__file__).resolve().parent

#: Tokens of prompt and answer, uniform between two bounds; `long` are the answers of each tenth request.
SHAPES = {
    "short": {"prompt": (100, 200), "answer": (100, 256)},
    "long": {"prompt": (100, 300), "answer": (600, 1600)},
    "mixed": {"prompt": (100, 600), "answer": (50, 450), "long": (1200, 1800)},
}
UNLIMITED = 1_000_000
#: What the server gets of this process's environment.
PASSED = ("PYTHONPATH", "HF_HUB_OFFLINE", "VLLM_USE_FLASHINFER_SAMPLER", "SGLANG_IS_FLASHINFER_AVAILABLE")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("recipe", "model", "python", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--engine", default="vllm", choices=["vllm", "sglang"])
    parser.add_argument("--shape", default="mixed", choices=SHAPES)
    parser.add_argument("--fixed", default="128,192,256,384")
    parser.add_argument("--cache", type=int, default=3_000_000_000, help="bytes of the KV cache")
    parser.add_argument("--warm", type=float, default=15)
    parser.add_argument("--measure", type=float, default=30)
    parser.add_argument("--cpu", action="store_true")
    return parser.parse_args()


def token_bytes(model: Path) -> int:
    """Bytes of the KV cache that one token takes in 16 bits."""
    config = json.loads((model / "config.json").read_text())
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return 2 * 2 * head * config["num_key_value_heads"] * config["num_hidden_layers"]


def gauges(page: urllib.request.Request) -> dict[str, float]:
    """What the gateway reports of its only replica."""
    with urllib.request.urlopen(page, timeout=30) as answer:
        text = answer.read().decode()
    return {n: float(v) for n, v in re.findall(r'^recipe_gateway_(\w+){replica="0"} (\S+)$', text, re.M)}


class Run:
    """A recipe with one server."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.folder = Path(options.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "concurrency.hcl").write_text((HERE / "concurrency.hcl").read_text())
        self.command = [str(Path(options.recipe).resolve())]
        model = Path(options.model).resolve()
        cache = 1 << 22 if options.cpu else options.cache
        self.values = {
            "engine": options.engine,
            "model": str(model),
            "python": options.python,
            "environment": json.dumps({n: os.environ[n] for n in PASSED if n in os.environ}),
            "sequences": 64 if options.cpu else 1024,
            "cache_bytes": cache,
            "cache_tokens": cache // token_bytes(model),
        }

    def recipe(self, *words: str) -> str:
        done = subprocess.run([*self.command, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"recipe {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def limit(self, sequences: int) -> None:
        given = {**self.values, "concurrency": sequences}
        flags = [f"--var={k}={v}" for k, v in given.items()]
        self.recipe("apply", "concurrency.hcl", "--detach", "--auto-approve", *flags)

    def output(self, name: str, seconds: float) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done = subprocess.run(
                [*self.command, "output", "--raw", name], cwd=self.folder, capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return done.stdout.strip()
            time.sleep(1)
        raise SystemExit(f"no output {name} after {seconds:.0f} s\n{self.recipe('status')}\n{self.recipe('logs')}")


class Load:
    """A client that keeps requests at the gateway."""

    def __init__(self, url: str, key: str, shape: dict, scale: int) -> None:
        self.url, self.key, self.shape, self.scale = url, key, shape, scale
        self.random = random.Random(1)  # noqa: S311
        self.failed = 0
        self.why = ""

    def request(self) -> dict:
        long = "long" in self.shape and self.random.random() < 0.1  # noqa: PLR2004
        prompt, answer = self.shape["prompt"], self.shape["long" if long else "answer"]
        return {
            "prompt": [self.random.randrange(100, 1000) for _ in range(self.random.randint(*prompt) // self.scale)],
            "max_tokens": self.random.randint(*answer) // self.scale,
            "ignore_eos": True,
            "temperature": 1.0,
        }

    async def one(self, session: aiohttp.ClientSession) -> None:
        while True:
            async with session.post(f"{self.url}/completions", json={"model": "model", **self.request()}) as answer:
                body = await answer.read()
                if answer.status != 200:  # noqa: PLR2004
                    self.failed, self.why = self.failed + 1, body.decode()[:300]
                    await asyncio.sleep(1)

    async def run(self, seconds: float, requests: int, look) -> None:  # noqa: ANN001
        headers = {"Authorization": f"Bearer {self.key}"}
        timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
            tasks = [asyncio.create_task(self.one(session)) for _ in range(requests)]
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await asyncio.sleep(1)
                await asyncio.to_thread(look)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def measure(options: argparse.Namespace, run: Run, limit: int, url: str, key: str) -> dict:
    run.limit(limit)
    time.sleep(2)
    page = urllib.request.Request(f"{url.removesuffix('/v1')}/metrics", headers={"Authorization": f"Bearer {key}"})
    seen: list[tuple[float, dict[str, float]]] = []

    def look() -> None:
        seen.append((time.monotonic(), gauges(page)))

    load = Load(url, key, SHAPES[options.shape], 20 if options.cpu else 1)
    asyncio.run(load.run(options.warm + options.measure, 40 if options.cpu else 1024, look))
    first = next(s for s in seen if s[0] >= seen[0][0] + options.warm - 1)
    last = seen[-1]
    took = last[0] - first[0]
    tokens, preempted = (last[1][n] - first[1][n] for n in ("engine_tokens", "preemptions"))
    time.sleep(1)
    return {
        "limit": limit,
        "tokens_s": round(tokens / took, 1),
        "preemptions": preempted,
        "failed": load.failed,
        "why": load.why,
        "limits": [s[1]["concurrency"] for s in seen],
        "cache": [round(s[1]["kv_cache_used"], 3) for s in seen],
    }


def main() -> None:
    options = arguments()
    run = Run(options)
    run.limit(0)
    found: list[dict] = []
    try:
        url, key = run.output("url", 300), run.output("key", 30)
        fixed = [int(n) for n in options.fixed.split(",")]
        for limit in [0, *fixed, UNLIMITED]:
            found.append(measure(options, run, limit, url, key))
            print(json.dumps({k: v for k, v in found[-1].items() if k not in ("limits", "cache")}), flush=True)
    finally:
        (run.folder / "result.json").write_text(json.dumps({**vars(options), "results": found}))
        run.recipe("stop")
    best = max(f["tokens_s"] for f in found if 0 < f["limit"] < UNLIMITED)
    auto, free = found[0], found[-1]
    for name, one in (("found", auto), ("no limit", free)):
        share = one["tokens_s"] / best
        print(f"{options.shape}, {name}: {share:.3f} of the best fixed number, {one['preemptions']:.0f} preemptions")
    print(f"limits: {[int(n) for n in auto['limits']]}")


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main())
