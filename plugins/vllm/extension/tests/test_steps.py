"""Steps that begin with a pass, on a scheduler with the members of vLLM's; e2e/testdata/steps.py has vLLM's own."""

from __future__ import annotations

import queue
import random
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import recipe_blocks
import recipe_outputs
import recipe_steps
import test_blocks
from test_outputs import Logprobs, Output, Step

OVER, END, LONGEST, BLOCK = object(), 7, 60, test_blocks.SIZE


class Request:
    """As vLLM's; one that decodes has the status test_blocks.RUNNING."""

    def __init__(self, name, prompt, tokens, wants=True, eos=True, drafts=False):
        self.request_id, self.num_prompt_tokens, self.max_tokens = name, prompt, tokens
        self._all_token_ids, self._output_token_ids = [1] * prompt, []
        self.status, self.drafts = test_blocks.RUNNING, drafts
        self.num_computed_tokens, self.num_output_placeholders, self.num_in_flight_tokens = prompt - 1, 0, 0
        self.num_stale_output_tokens, self.spec_token_ids, self.is_prefill_chunk = 0, [], False
        self.events, self.prefill_stats, self.mm_features, self.resumable = [], "filled", [], False
        self.pooling_params = self.structured_output_request = None
        self.sampling_params = SimpleNamespace(
            stop=[], stop_token_ids=[9], eos_token_id=END if eos else None, num_logprobs=0 if wants else None
        )
        self.hashes = 0

    @property
    def num_tokens(self):
        return len(self._all_token_ids)

    def append_output_token_ids(self, token):
        self._output_token_ids.append(token)
        self._all_token_ids.append(token)
        self.hashes = len(self._all_token_ids) // BLOCK


@dataclass
class Scheduled:
    """As SchedulerOutput."""

    num_scheduled_tokens: dict[str, int]
    scheduled_cached_reqs: Any
    total_num_scheduled_tokens: int
    scheduled_spec_decode_tokens: dict[str, Any] = field(default_factory=dict)


class AsyncScheduler:
    """As vLLM's, with nothing but decoding in it."""

    def __init__(self):
        self.requests, self.running, self.waiting, self._pause_state = {}, [], 0, 0
        self.max_model_len, self.max_num_scheduled_tokens = LONGEST, 100
        self.kv_cache_manager = test_blocks.Cache(free=1000)
        pool = self.kv_cache_manager.coordinator.block_pool
        pool.get_num_free_blocks = lambda: self.kv_cache_manager.free
        self.kv_cache_manager.block_pool, self.looked_at = pool, 0

    def add(self, request):
        self.requests[request.request_id] = request
        self.running.append(request)

    def get_request_counts(self):
        return len(self.running), self.waiting

    def schedule(self, throttle_prefills=False):
        requests, tokens, blocks = [], {}, {}
        for r in self.running:
            self.looked_at += 1
            waiting = r.num_output_placeholders
            if waiting and r.num_computed_tokens + 2 - waiting >= r.num_prompt_tokens + r.max_tokens:
                continue
            new = len(r._all_token_ids) + waiting - r.num_computed_tokens
            if min(new, LONGEST - r.num_computed_tokens - 1) != 1:
                continue
            requests.append(r)
            blocks[r.request_id] = self.kv_cache_manager.allocate_slots(r, 1)
            tokens[r.request_id] = 1
        total = sum(tokens.values())
        step = Scheduled(tokens, self._make_cached_request_data(requests, [], tokens, {}, blocks), total)
        if any(self.requests[name].drafts for name in tokens):
            step.scheduled_spec_decode_tokens = {"draft": [1]}
        self._update_after_schedule(step)
        return step

    def _make_cached_request_data(self, requests, resumed, tokens, drafts, blocks):
        held = {r.request_id: len(blocks[r.request_id]) for r in requests}
        return held, [(r.num_computed_tokens, len(r._output_token_ids)) for r in requests]

    def _update_after_schedule(self, step):
        for name in step.num_scheduled_tokens:
            self.requests[name].num_computed_tokens += 1
            self.requests[name].num_in_flight_tokens += 1
            self.requests[name].num_output_placeholders += 1

    def update_from_output(self, step, output):
        told = {}
        for name in step.num_scheduled_tokens:
            request = self.requests.get(name)
            if request is None:
                continue
            self.looked_at += 1
            i = output.req_id_to_index[name]
            (token,) = output.sampled_token_ids[i]
            request.num_in_flight_tokens -= 1
            request.append_output_token_ids(token)
            request.num_output_placeholders -= 1
            done = request.num_computed_tokens - request.num_output_placeholders
            self.kv_cache_manager.cache_blocks(request, done)
            wants, values = request.sampling_params.num_logprobs is not None, None
            if wants and output.logprobs is not None:
                values = Logprobs(*(column[i : i + 1] for column in output.logprobs[:3]))
            params, over = request.sampling_params, None
            if token == params.eos_token_id or token in params.stop_token_ids:
                over = "stop"
            elif len(request._all_token_ids) >= min(request.num_prompt_tokens + request.max_tokens, LONGEST):
                over = "length"
            stats, request.prefill_stats = request.prefill_stats, None
            events, request.events = request.events, []
            told.setdefault(int(name) % 2, []).append(Output(name, [token], values, over, stats or events or None))
            if over:
                self.end(request)
        return {client: Step(outputs) for client, outputs in told.items()}

    def end(self, request):
        request.status = OVER
        self.requests.pop(request.request_id)
        self.running = [r for r in self.running if r is not request]


class Engine:
    """As EngineCoreProc, with what its front ends were told."""

    def __init__(self, interval=5):
        self.scheduler, self.output_queue, self.told, self._weight_version = AsyncScheduler(), queue.Queue(), {}, "1"
        self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(stream_interval=interval))
        self.under_way: list[Any] = []

    def step(self, number):
        """Schedules a step and reads the one before; what it schedules."""
        step = self.scheduler.schedule(False)
        names = list(step.num_scheduled_tokens)
        tokens = [random.Random(f"{number} {name}").randrange(100) for name in names]
        ids = np.array([[t] * (1 + number % 3 // 2) for t in tokens])
        output = SimpleNamespace(
            req_id_to_index={n: i for i, n in enumerate(names)}, sampled_token_ids=[[t] for t in tokens],
            logprobs=Logprobs(ids, ids.astype(np.float32) / 7, np.array(tokens) % 5) if names else None,
        )  # fmt: skip
        self.under_way.append((step, output))
        if len(self.under_way) == 2:
            for client, outputs in self.scheduler.update_from_output(*self.under_way.pop(0)).items():
                outputs.weight_version = self._weight_version
                self.output_queue.put_nowait((client, outputs))
        while not self.output_queue.empty():
            _, said = self.output_queue.get_nowait()
            for o in said.outputs:
                told = self.told.setdefault(o.request_id, [[], [], None])
                told[0] += [(token, said.weight_version) for token in o.new_token_ids]
                told[1] += o.new_logprobs.logprobs[:, 0].tolist() if o.new_logprobs is not None else []
                told[2] = o.finish_reason
        return names, step.scheduled_cached_reqs, step.total_num_scheduled_tokens

    def knows(self):
        """Of each request and of the cache."""
        (blocks,) = self.scheduler.kv_cache_manager.coordinator.single_type_managers
        members = {n: {k: v for k, v in vars(r).items() if k in MEMBERS} for n, r in self.scheduler.requests.items()}
        held = {name: len(b) for name, b in blocks.req_to_blocks.items()}
        return members, held, blocks.num_cached_block, [r.request_id for r in self.scheduler.running]


MEMBERS = ("_all_token_ids", "_output_token_ids", "hashes", "num_computed_tokens", "num_in_flight_tokens",
           "num_output_placeholders", "events", "prefill_stats")  # fmt: skip


@pytest.fixture
def vllm(monkeypatch):
    """The classes above as vLLM's, whose code was read; installed as vLLM does it."""
    modules = {n: ModuleType(n) for n in ("vllm", "vllm.v1", "vllm.v1.core", "vllm.v1.core.sched")}
    modules["vllm.v1.core.sched.utils"] = SimpleNamespace(check_stop=AsyncScheduler.end)
    modules["vllm.v1.outputs"] = SimpleNamespace(LogprobsLists=Logprobs)
    modules["vllm.v1.request"] = SimpleNamespace(
        Request=Request, RequestStatus=SimpleNamespace(RUNNING=test_blocks.RUNNING)
    )
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    of = recipe_blocks.digest(recipe_blocks.METHODS, test_blocks.Cache, test_blocks.Coordinator, test_blocks.Blocks)
    monkeypatch.setattr(recipe_blocks, "READ", {of: "here"})
    code = recipe_blocks.digest(recipe_steps.METHODS, AsyncScheduler, Request, Logprobs, AsyncScheduler.end)
    monkeypatch.setattr(recipe_steps, "READ", {code: "here"})
    monkeypatch.setattr(recipe_steps, "asked", False)


def begun(engine, load_plugin):
    """Whether an engine's steps begin with a pass."""
    load_plugin("recipe_steps")
    recipe_blocks.answer(engine.scheduler.kv_cache_manager, test_blocks.RUNNING)
    recipe_outputs.keep(engine)
    return "schedule" in vars(engine.scheduler)


@pytest.mark.parametrize("seed", range(10))
def test_a_step_is_what_it_would_be(vllm, load_plugin, seed):
    """Random requests of two front ends, beside an engine that looks at each of them, some aborted on the way."""
    theirs, ours = pair = Engine(), Engine()
    assert begun(ours, load_plugin)
    draw, aborted = random.Random(seed), set()
    for number in range(400):
        if draw.random() < 0.2:
            kind = (draw.randint(1, 9), draw.randint(1, 70), draw.random() < 0.8, draw.random() < 0.5)
            drafts = draw.random() < 0.05
            for one in pair:
                one.scheduler.add(Request(str(number), *kind, drafts=drafts))
        if theirs.scheduler.running and draw.random() < 0.03:
            aborted.add(gone := draw.choice(theirs.scheduler.running).request_id)
            for one in pair:
                one.scheduler.end(one.scheduler.requests[gone])
        if theirs.scheduler.running and draw.random() < 0.1:
            eventful = draw.choice(theirs.scheduler.running).request_id
            for one in pair:
                one.scheduler.requests[eventful].events.append("preempted")
        for one in pair:
            one.scheduler.waiting = int(draw.random() < 0.05) if one is theirs else theirs.scheduler.waiting
            one._weight_version = str(number // 50)
        did, does = (one.step(number) for one in pair)
        assert did == does, number
        assert theirs.knows() == ours.knows(), number
    for name, told in theirs.told.items():
        part = ours.told[name]
        length = len(part[0]) if part[2] is None else len(told[0])
        assert [told[0][:length], told[1][: len(part[1])], told[2]] == part
        assert name in aborted or len(told[0]) - length < 5
    assert ours.scheduler.looked_at < 0.75 * theirs.scheduler.looked_at


def test_a_request_is_read_only_when_needed(vllm, load_plugin):
    """Of two that go on, and only then."""
    engine = Engine(interval=4)
    assert begun(engine, load_plugin)
    for name in "01":
        engine.scheduler.add(Request(name, BLOCK, 40, eos=False))
    looked = []
    for number in range(20):
        before = engine.scheduler.looked_at
        engine.step(number * 1000)
        looked.append(engine.scheduler.looked_at - before)
    assert max(looked[6:]) == 4, "both need a block and are handed on"
    assert looked[6:].count(1) >= 6, "one of the pass is scheduled by vLLM, so that it has something to do"


@pytest.mark.parametrize("why", ["not asked", "unread", "a connector", "another cache"])
def test_another_scheduler_is_left_alone(vllm, load_plugin, monkeypatch, caplog, why):
    engine = Engine()
    caplog.set_level("INFO", logger="vllm")
    if why == "unread":
        monkeypatch.setattr(recipe_steps, "READ", {})
    if why == "a connector":
        engine.scheduler.connector = object()
    if why == "another cache":
        monkeypatch.setattr(recipe_blocks, "READ", {})
    if why == "not asked":
        recipe_blocks.answer(engine.scheduler.kv_cache_manager, test_blocks.RUNNING)
        recipe_outputs.keep(engine)
        assert "schedule" not in vars(engine.scheduler)
        return
    assert not begun(engine, load_plugin)
    said = {"unread": "its code is ", "a connector": "it has connector", "another cache": "its cache is not answered"}
    assert f"recipe: vLLM looks at every sequence in every step itself: {said[why]}" in caplog.text
