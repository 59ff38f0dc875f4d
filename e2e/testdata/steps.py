"""steps.py MODEL: vLLM's real scheduler beside one whose steps recipe_steps.py begins, step by step.

MODEL is a folder with a config.json; no weights are read. Random sequences fill a cache that is too small, so that some
are preempted; some end by a token, some by their length, some are aborted, and they ask for different numbers of
log-probabilities. Whatever a step schedules has to be the same, and so has what each scheduler knows after it and what
its front ends are told in the end. Writes what was compared as JSON.
"""

from __future__ import annotations

import json
import queue
import random
import sys
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import blocks
import numpy as np
import recipe_blocks
import recipe_outputs
import recipe_steps
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

END, STOP = 7, 11  # of 100 tokens


class Side:
    """A scheduler and its front end's queue, as vLLM's engine has them; `ours` with what recipe adds."""

    def __init__(self, model: str, caching: bool, ahead: bool, ours: bool) -> None:
        self.scheduler, self.ahead = blocks.scheduler(model, caching, ahead), ahead
        self.output_queue: queue.Queue[Any] = queue.Queue()
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(stream_interval=5))
        self._weight_version = "1"
        self.under_way: list[Any] = []
        self.told: dict[str, dict[str, Any]] = defaultdict(lambda: {"tokens": [], "values": [], "end": None})
        self.looked_at = 0
        if ours:
            recipe_blocks.answer(self.scheduler.kv_cache_manager, RequestStatus.RUNNING)
            of_vllm = self.scheduler.update_from_output
            recipe_steps.install()
            recipe_outputs.keep(self)
            self.answered = self.scheduler.update_from_output is not of_vllm
            self.count()

    def count(self) -> None:
        """Counts the sequences whose outputs vLLM's own code reads."""
        begin = self.scheduler._update_request_with_output

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.looked_at += 1
            return begin(*args, **kwargs)

        self.scheduler._update_request_with_output = counted

    def step(self, number: int) -> dict[str, Any]:
        """Schedules a step, and reads its tokens or those of the one before; returns what it schedules."""
        step = self.scheduler.schedule(False)  # as vLLM's engine calls it
        output = sampled(step, number, self.scheduler)
        self.under_way.append((step, output))
        did = blocks.scheduled(step)
        did["order"] = list(step.num_scheduled_tokens)
        did["generated"] = step.scheduled_cached_reqs.num_output_tokens
        did["total"] = step.total_num_scheduled_tokens
        if len(self.under_way) > self.ahead:
            for client, outputs in self.scheduler.update_from_output(*self.under_way.pop(0)).items():
                if hasattr(outputs, "weight_version"):
                    outputs.weight_version = self._weight_version
                self.output_queue.put_nowait((client, outputs))
        return did

    def listen(self) -> None:
        """Reads what the front ends are told."""
        while not self.output_queue.empty():
            _, outputs = self.output_queue.get_nowait()
            for o in outputs.outputs:
                told = self.told[o.request_id]
                version = getattr(outputs, "weight_version", None)  # vLLM 0.24 has none
                told["tokens"] += [(token, version) for token in o.new_token_ids]
                told["end"] = (str(o.finish_reason), o.stop_reason) if o.finish_reason is not None else None
                if o.new_logprobs is not None:
                    ids, values, ranks, *_ = o.new_logprobs
                    assert len(ids) == len(values) == len(ranks) == len(o.new_token_ids), o
                    told["values"] += zip(ids[:, 0].tolist(), values[:, 0].tolist(), ranks.tolist(), strict=True)

    def knows(self) -> dict[str, Any]:
        """What its scheduler knows."""
        more = ("num_computed_tokens", "num_output_placeholders", "is_prefill_chunk", "num_in_flight_tokens")
        return blocks.known(self.scheduler) | {
            "requests": {
                name: {m: getattr(r, m, None) for m in more} | {"status": str(r.status), "hashes": len(r.block_hashes)}
                for name, r in self.scheduler.requests.items()
            },
            "all": {name: list(r.all_token_ids) for name, r in self.scheduler.requests.items()},
        }


def sampled(step: Any, number: int, scheduler: Any) -> ModelRunnerOutput:
    """As a model would answer it: as many log-probabilities for each sequence as any of them wants."""
    names = list(step.num_scheduled_tokens)
    tokens = {name: random.Random(f"{number} {name}").randrange(100) for name in names}
    wanted = [p for n in names if (p := scheduler.requests[n].sampling_params.num_logprobs) is not None]
    lists = None
    if wanted:
        ids = np.array([[tokens[name] + i for i in range(1 + max(wanted))] for name in names])
        lists = LogprobsLists(ids, -ids.astype(np.float32) / 7, ids[:, 0] % 5)
    output = ModelRunnerOutput(
        req_ids=names, req_id_to_index={n: i for i, n in enumerate(names)},
        sampled_token_ids=[[tokens[n]] for n in names], logprobs=lists, prompt_logprobs_dict={}, pooler_output=[],
    )  # fmt: skip
    blocks.unfinished(scheduler, step, output)
    return output


def request(name: str, draw: random.Random, hasher: Any) -> Request:
    shared = list(range(40))
    longest = draw.choice([1, 2, 8]) if draw.random() < 0.1 else draw.randint(8, 200)
    params = SamplingParams(
        max_tokens=longest, logprobs=draw.choice([None, 0, 0, 0, 3]), ignore_eos=draw.random() < 0.7,
        min_tokens=draw.choice([0, 0, 1]), stop_token_ids=draw.choice([None, None, [STOP]]),
        stop=draw.choice([None, None, None, ["."]]), detokenize=True,
    )  # fmt: skip
    params.update_from_generation_config({}, END)
    prompt = shared[: draw.choice([0, 16, 40])] + [draw.randrange(100) for _ in range(draw.randint(1, 60))]
    return Request(
        request_id=name, prompt_token_ids=prompt, sampling_params=params, pooling_params=None, block_hasher=hasher,
        client_index=draw.randrange(3),
    )  # fmt: skip


def compare(model: str, caching: bool, ahead: bool, steps: int) -> dict[str, Any]:
    """Both over the same sequences; the first difference ends it with an error."""
    pair = [Side(model, caching, ahead, ours) for ours in (False, True)]
    theirs, ours = pair
    draw, hasher = random.Random(1), get_request_block_hasher(blocks.BLOCK, sha256)
    aborted: set[str] = set()
    found = {"answered": ours.answered, "steps": steps, "tokens": 0, "preempted": 0}
    for number in range(steps):
        if draw.random() < (0.5 if number % 600 < 300 else 0.03) and len(theirs.scheduler.requests) < 48:
            seed = draw.random()
            for side in pair:
                side.scheduler.add_request(request(f"r{number}", random.Random(seed), hasher))
        if theirs.scheduler.requests and draw.random() < 0.05:
            aborted.add(gone := draw.choice(list(theirs.scheduler.requests)))
            for side in pair:
                side.scheduler.finish_requests(gone, RequestStatus.FINISHED_ABORTED)
        version = str(number // 97)
        for side in pair:
            side._weight_version = version
        for what, (left, right) in {
            "scheduled": [side.step(number) for side in pair],
            "known": [side.knows() for side in pair],
        }.items():
            if left != right:
                parts = {key: (left[key], right[key]) for key in left if left[key] != right[key]}
                raise SystemExit(f"step {number}, {caching=}, {ahead=}: {what} by vLLM and with recipe_steps: {parts}")
            found["tokens"] += len(left["tokens"]) if what == "scheduled" else 0
            found["preempted"] += len(left["preempted"]) if what == "scheduled" else 0
        for side in pair:
            side.listen()
    tell(theirs, ours, aborted)
    ends = [told["end"] for told in theirs.told.values()]
    return found | {
        "aborted": len(aborted), "lookedAt": ours.looked_at, "ended": sum(e is not None for e in ends),
        "stopped": sum(e is not None and "stop" in e[0].lower() for e in ends),
    }  # fmt: skip


def tell(theirs: Side, ours: Side, aborted: set[str]) -> None:
    """That both front ends know the same; of sequences without an end the last tokens may still wait."""
    for name, full in theirs.told.items():
        part = ours.told[name]
        over = full["end"] is not None
        for what in ("tokens", "values"):
            same = part[what] == full[what] if over else part[what] == full[what][: len(part[what])]
            short = 0 if name in aborted else len(full["tokens"]) - len(part["tokens"])
            if not same or short >= 5:
                raise SystemExit(f"{name}: front ends were told {what} {full[what]} and {part[what]}")
        if part["end"] != full["end"]:
            raise SystemExit(f"{name} ended by {full['end']} and {part['end']}")


def main() -> None:
    init_none_hash(sha256)
    print(json.dumps([compare(sys.argv[1], *kind, 3000) for kind in ((True, True), (False, True), (True, False))]))


if __name__ == "__main__":
    main()
