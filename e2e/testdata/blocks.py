"""blocks.py MODEL: vLLM's real scheduler beside one whose cache recipe_blocks.py answers, step by step.

MODEL is a folder with a config.json; no weights are read. Random sequences of both fill a cache that is too small, so
that some are preempted; some share a prompt's start, some are aborted. Whatever a step schedules has to be the same,
and so has what each cache knows after it. Writes what was compared as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import recipe_blocks
import torch
from vllm.config import CacheConfig, ModelConfig, ParallelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import LogprobsLists, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

BLOCK, BLOCKS, LONGEST, SEQUENCES = 16, 160, 512, 24


def scheduler(model: str, caching: bool, ahead: bool = True) -> Scheduler:
    """vLLM's own, as a server has it, over a cache of BLOCKS blocks; ahead: a step is scheduled while another runs."""
    config = VllmConfig(
        model_config=ModelConfig(model=model, dtype="bfloat16", max_model_len=LONGEST, skip_tokenizer_init=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=SEQUENCES, max_num_batched_tokens=LONGEST, max_model_len=LONGEST, enable_chunked_prefill=True,
            is_encoder_decoder=False, async_scheduling=ahead,
        ),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=caching),
        parallel_config=ParallelConfig(),
    )  # fmt: skip
    config.cache_config.num_gpu_blocks = BLOCKS
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    cache = KVCacheConfig(BLOCKS, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return (AsyncScheduler if ahead else Scheduler)(
        vllm_config=config, kv_cache_config=cache, block_size=BLOCK, log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
    )  # fmt: skip


def request(name: str, prompt: list[int], tokens: int, hasher: Callable[..., Any]) -> Request:
    params = SamplingParams(max_tokens=tokens, logprobs=0, ignore_eos=True)
    params.update_from_generation_config({}, 0)
    return Request(
        request_id=name, prompt_token_ids=prompt, sampling_params=params, pooling_params=None, block_hasher=hasher
    )


def sampled(step: Any, draw: np.random.Generator) -> ModelRunnerOutput:
    """What a model would answer: a token for each sequence of which the step has the last of its tokens."""
    names = list(step.num_scheduled_tokens)
    tokens = draw.integers(0, 100, (len(names), 1))
    lists = LogprobsLists(tokens, tokens.astype(np.float32), np.ones(len(names), np.int32))
    return ModelRunnerOutput(
        req_ids=names, req_id_to_index={n: i for i, n in enumerate(names)}, sampled_token_ids=tokens.tolist(),
        logprobs=lists, prompt_logprobs_dict={}, pooler_output=[],
    )  # fmt: skip


def unfinished(of: Scheduler, step: Any, output: ModelRunnerOutput) -> None:
    """Takes away the tokens of sequences whose prompt the step did not end."""
    for name, tokens in zip(output.req_ids, output.sampled_token_ids, strict=True):
        if name in of.requests and of.requests[name].is_prefill_chunk and step.num_scheduled_tokens[name] > 1:
            tokens.clear()


def known(of: Scheduler) -> dict[str, Any]:
    """What a scheduler's cache knows."""
    (blocks,) = of.kv_cache_manager.coordinator.single_type_managers
    return {
        "held": {name: [b.block_id for b in held] for name, held in blocks.req_to_blocks.items()},
        "full": dict(blocks.num_cached_block),
        "free": of.kv_cache_manager.block_pool.get_num_free_blocks(),
        "hit": of.kv_cache_manager.usage,
        "running": [r.request_id for r in of.running],
        "tokens": {name: list(r.output_token_ids) for name, r in of.requests.items()},
    }


def scheduled(step: Any) -> dict[str, Any]:
    """What a step schedules."""
    cached = step.scheduled_cached_reqs
    return {
        "tokens": step.num_scheduled_tokens,
        "new": [(r.req_id, r.block_ids, r.num_computed_tokens) for r in step.scheduled_new_reqs],
        "running": (cached.req_ids, cached.new_block_ids, cached.num_computed_tokens),
        "preempted": sorted(step.preempted_req_ids or ()),
        "finished": sorted(step.finished_req_ids),
    }


def compare(model: str, caching: bool, steps: int) -> dict[str, Any]:
    """Both schedulers over the same sequences; the first difference ends it with an error."""
    pair = [scheduler(model, caching), scheduler(model, caching)]
    cache = pair[1].kv_cache_manager
    asked, of_vllm = [0], cache.allocate_slots

    def counted(*args: Any, **kwargs: Any) -> Any:
        asked[0] += 1
        return of_vllm(*args, **kwargs)

    cache.allocate_slots = counted
    answered = recipe_blocks.answer(cache, RequestStatus.RUNNING)
    draw, hasher = random.Random(1), get_request_block_hasher(BLOCK, sha256)
    shared = [draw.randrange(100) for _ in range(40)]
    under_way: list[list[Any]] = [[], []]
    found = {"answered": answered, "steps": steps, "slots": 0, "preempted": 0, "aborted": 0}
    for number in range(steps):
        if draw.random() < 0.5 and len(pair[0].requests) < 2 * SEQUENCES:
            prompt = shared[: draw.choice([0, 16, 40])] + [draw.randrange(100) for _ in range(draw.randint(1, 60))]
            tokens = draw.randint(1, 200)
            for one in pair:
                one.add_request(request(f"r{number}", list(prompt), tokens, hasher))
        if pair[0].requests and draw.random() < 0.05:
            gone = draw.choice(list(pair[0].requests))
            found["aborted"] += 1
            for one in pair:
                one.finish_requests(gone, RequestStatus.FINISHED_ABORTED)
        did = []
        for one, waiting in zip(pair, under_way, strict=True):
            step = one.schedule()
            output = sampled(step, np.random.default_rng(number))
            unfinished(one, step, output)
            waiting.append((step, output))
            did.append(scheduled(step))
            if len(waiting) == 2:  # one is under way while the next is scheduled, as in a server
                one.update_from_output(*waiting.pop(0))
        for what in ("scheduled", "known"):
            theirs, ours = did if what == "scheduled" else [known(one) for one in pair]
            if theirs != ours:
                parts = {key: (theirs[key], ours[key]) for key in theirs if theirs[key] != ours[key]}
                raise SystemExit(f"step {number}, caching {caching}: {what} by vLLM and with recipe_blocks: {parts}")
        found["slots"] += len(did[0]["tokens"])
        found["preempted"] += len(did[0]["preempted"])
    return found | {"asked": asked[0]}


def main() -> None:
    init_none_hash(sha256)
    print(json.dumps([compare(sys.argv[1], caching, 1500) for caching in (True, False)]))


if __name__ == "__main__":
    main()
