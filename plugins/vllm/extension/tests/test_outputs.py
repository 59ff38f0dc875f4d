"""Tokens that are kept in the engine, on outputs with the members of vLLM's."""

from __future__ import annotations

import queue
import random
import sys
from types import ModuleType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import recipe_outputs


HEADERS = {"traceparent": "1"}


class Logprobs(NamedTuple):
    """As LogprobsLists."""

    logprob_token_ids: np.ndarray
    logprobs: np.ndarray
    sampled_token_ranks: np.ndarray
    cu_num_generated_tokens: list | None = None


class Output:
    """As EngineCoreOutput."""

    __struct_fields__ = ("request_id", "new_token_ids", "new_logprobs", "finish_reason", "prefill_stats",
                         "trace_headers", "num_nans_in_logits")  # fmt: skip
    __struct_defaults__ = (None, None, None, None, 0)

    def __init__(
        self, request_id, new_token_ids, new_logprobs=None, finish_reason=None, prefill_stats=None,
        trace_headers=HEADERS,
    ):  # fmt: skip
        self.request_id, self.new_token_ids, self.new_logprobs = request_id, new_token_ids, new_logprobs
        self.finish_reason, self.prefill_stats, self.trace_headers = finish_reason, prefill_stats, trace_headers
        self.num_nans_in_logits = 0


class Step:
    """As EngineCoreOutputs."""

    def __init__(self, outputs=(), weight_version=None, scheduler_stats=None, utility_output=None):
        self.outputs, self.weight_version, self.scheduler_stats = list(outputs), weight_version, scheduler_stats
        self.utility_output, self.finished_requests = utility_output, None


def logprobs(token: int) -> Logprobs:
    return Logprobs(np.array([[token]]), np.array([[-token / 7]], np.float32), np.array([token % 5]))


def request(stop=()) -> SimpleNamespace:
    return SimpleNamespace(sampling_params=SimpleNamespace(stop=list(stop)))


def read(items: list) -> dict[str, tuple[list, list]]:
    """What a front end would know of each request: tokens and log-probabilities."""
    found: dict[str, tuple[list, list]] = {}
    for _, step in items:
        for o in step.outputs:
            assert o.trace_headers == HEADERS
            tokens, values = found.setdefault(o.request_id, ([], []))
            tokens += o.new_token_ids
            if o.new_logprobs is not None:
                assert o.new_logprobs.logprob_token_ids[:, 0].tolist() == o.new_token_ids
                assert len(o.new_logprobs.sampled_token_ranks) == len(o.new_token_ids)
                values += o.new_logprobs.logprobs[:, 0].tolist()
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_front_end_gets_each_token_once_in_order(seed):
    """Random steps of random requests: some ask for log-probabilities, some have stop strings, some are aborted."""
    draw = random.Random(seed)
    requests, put = {}, []
    outputs = recipe_outputs.Outputs(put.append, requests, interval := draw.randint(2, 9))
    sent: dict[str, list[int]] = {}
    ended, version = set(), 0
    for number in range(300):
        if draw.random() < 0.3:
            requests[f"r{number}"] = request(draw.choice([(), (), ("\n",)]))
        version += draw.random() < 0.05
        if requests and draw.random() < 0.05:
            requests.pop(draw.choice(list(requests)))  # aborted: what was kept is for nobody
        step = {0: Step(weight_version=str(version)), 1: Step(weight_version=str(version))}
        for name in draw.sample(list(requests), min(len(requests), 8)):
            client, tokens = int(name[1:]) % 2, [draw.randrange(1000) for _ in range(draw.choice([1, 1, 1, 3]))]
            first, last = name not in sent, draw.random() < 0.03
            values = None
            if int(name[1:]) % 3:
                values = Logprobs(*(np.concatenate(c) for c in zip(*(logprobs(t)[:3] for t in tokens), strict=True)))
            sent.setdefault(name, []).extend(tokens)
            step[client].outputs.append(
                Output(name, tokens, values, "stop" if last else None, "filled" if first else None)
            )
            if last:
                del requests[name]
                ended.add(name)
        for item in step.items():
            outputs.put(item)
        got = read(put)
        for name in requests:
            missing = len(sent.get(name, [])) - len(got.get(name, ([],))[0])
            assert missing < (1 if requests[name].sampling_params.stop else interval)
        assert all(name in got for name in sent), "the first token is handed on at once"
    got = read(put)
    assert {name: got[name][0] for name in ended} == {name: sent[name] for name in ended}
    for name in sent:
        assert sent[name][: len(got[name][0])] == got[name][0]
        assert got[name][1] == ([np.float32(-t / 7) for t in got[name][0]] if int(name[1:]) % 3 else [])
    assert len(outputs.kept) <= 2 * len(requests), "nothing of aborted requests stays"


def test_tokens_keep_the_version_that_sampled_them():
    put = []
    outputs = recipe_outputs.Outputs(put.append, {"a": request()}, 8)
    for version in ("1", "1", "2", "2", "2"):
        outputs.put((0, Step([Output("a", [int(version)], logprobs(int(version)))], version)))
    outputs.put((0, Step([Output("a", [2], logprobs(2), "length")], "2")))
    assert [(s.weight_version, o.new_token_ids) for _, s in put for o in s.outputs] == [("1", [1, 1]), ("2", [2] * 4)]


def test_columns_of_another_request_are_not_passed_on():
    """A step has as many log-probabilities of each token as any of its requests asked for."""
    put = []
    outputs = recipe_outputs.Outputs(put.append, {"a": request()}, 3)
    for token, more in ((1, []), (2, [8, 9]), (3, [])):
        ids = np.array([[token, *more]])
        outputs.put((0, Step([Output("a", [token], Logprobs(ids, ids / np.float32(4), np.array([1])))])))
    (output,) = [o for _, s in put for o in s.outputs]
    assert output.new_token_ids == [1, 2, 3]
    assert output.new_logprobs.logprob_token_ids.tolist() == [[1], [2], [3]]
    assert output.new_logprobs.logprobs.tolist() == [[0.25], [0.5], [0.75]]


def test_a_request_gets_no_tokens_of_an_aborted_one():
    put, requests = [], {"a": request(), "b": request()}
    outputs = recipe_outputs.Outputs(put.append, requests, 8)
    outputs.put((0, Step([Output("a", [1])])))
    requests["a"] = request()  # aborted, and asked for again under the same X-Request-Id
    outputs.put((0, Step([Output("a", [2], finish_reason="stop")])))
    assert [o.new_token_ids for _, s in put for o in s.outputs] == [[2]]


def test_what_is_no_tokens_is_not_kept():
    put = []
    outputs = recipe_outputs.Outputs(put.append, {"a": request()}, 8)
    answer, dead, stats = Step(utility_output="answer"), b"dead", Step(scheduler_stats="stats")
    for item in ((0, answer), dead, (-1, stats)):
        outputs.put(item)
    outputs.put((0, Step([Output("a", [1])], scheduler_stats="stats")))  # its token is kept, its statistics are not
    outputs.put((0, Step([Output("a", [2])])))
    assert put[:3] == [(0, answer), dead, (-1, stats)]
    assert [(s.outputs, s.scheduler_stats) for _, s in put[3:]] == [([], "stats")]


def test_an_array_beside_a_token_is_passed_on():
    put = []
    outputs = recipe_outputs.Outputs(put.append, {"a": request()}, 8)
    outputs.put((0, Step([Output("a", [1])])))
    outputs.put((0, Step([Output("a", [2], prefill_stats=np.arange(3))])))
    (output,) = [o for _, s in put for o in s.outputs]
    assert output.new_token_ids == [1, 2]
    assert output.prefill_stats.tolist() == [0, 1, 2]


def test_vllm_finds_it_and_an_engine_keeps_tokens(monkeypatch, load_plugin):
    """Through the entry point, twice, as each of vLLM's processes loads it."""
    asked = []

    class EngineCoreProc:
        def __init__(self, interval):
            self.output_queue, self.scheduler = queue.Queue(), SimpleNamespace(requests={"a": request()})
            self.vllm_config = SimpleNamespace(scheduler_config=SimpleNamespace(stream_interval=interval))

        def run_busy_loop(self):
            for token in range(1, 5):
                self.output_queue.put_nowait((0, Step([Output("a", [token])])))
            asked.append(self)
            return "over"

    for name in ("vllm", "vllm.v1", "vllm.v1.engine"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    core = ModuleType("vllm.v1.engine.core")
    core.EngineCoreProc = EngineCoreProc
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.core", core)
    load_plugin("recipe_outputs")
    several, single = EngineCoreProc(4), EngineCoreProc(1)
    assert [several.run_busy_loop(), single.run_busy_loop()] == ["over", "over"]
    assert asked == [several, single]
    assert [o.new_token_ids for o in several.output_queue.get_nowait()[1].outputs] == [[1, 2, 3, 4]]
    assert several.output_queue.empty()
    assert single.output_queue.qsize() == 4


def test_a_vllm_without_such_an_engine_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    recipe_outputs.install()
