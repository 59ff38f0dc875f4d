"""Fewer and larger messages from vLLM's engine to its front ends.

The engine's process tells a front end of every token by itself, with arrays for its log-probability. Both are single
Python processes, and with hundreds of sequences of a small model the GPU waits for them: for two thirds of the time
with 1.5B parameters on an H200. The front end then keeps tokens until there are --stream-interval of them. Here they
are kept in the engine already, so that both do this work once for so many.

vLLM finds `install` by the entry point in recipe_vllm.dist-info, in each of its processes. Nothing is changed where
vLLM lacks what is looked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import recipe_steps

#: What an output may hold without being handed on at once; headers are those of its request.
TOKENS = ("request_id", "new_token_ids", "new_logprobs", "trace_headers")


@cache
def others(output: type) -> tuple[attrgetter, tuple[Any, ...]]:
    """What reads the other members of an output, and what they are when there is nothing in them."""
    members = output.__struct_fields__
    without = dict(zip(reversed(members), reversed(output.__struct_defaults__), strict=False))
    names = [m for m in members if m not in TOKENS]
    return attrgetter(*names), tuple(without.get(m) for m in names)


class Rows:
    """Log-probabilities of consecutive tokens as lists, which are made arrays once: of each token its rank, and ids
    and values of `width` columns. like: LogprobsLists with such numbers."""

    __slots__ = ("ids", "like", "ranks", "values", "width")

    def __init__(self, like: Any, width: int) -> None:
        self.like, self.width = like, width
        self.ids: list[list[int]] = []
        self.values: list[list[float]] = []
        self.ranks: list[int] = []

    def arrays(self) -> Any:
        """As vLLM has them."""
        columns = zip((self.ids, self.values, self.ranks), self.like, strict=False)
        return type(self.like)(*(np.array(column, like.dtype) for column, like in columns))


class Kept:
    """A request whose tokens may wait, and those that do.

    client: the front end that it is of. parts: their log-probabilities, as LogprobsLists and Rows; rows: the last of
    these, to which the next may be added.
    """

    __slots__ = ("client", "output", "parts", "request", "rows", "tokens")

    def __init__(self, client: int, request: Any, output: Any) -> None:
        self.client, self.request, self.output = client, request, output
        self.tokens: list[int] = []
        self.parts: list[Any] = []
        self.rows: Rows | None = None

    def add(self, tokens: list[int], logprobs: Any) -> None:
        """Keeps what an output says."""
        self.tokens += tokens
        if logprobs is not None:
            self.parts.append(logprobs)
            self.rows = None

    def begin(self, like: Any) -> Rows:
        """Rows for the next token and those behind it, of steps with as many numbers as this."""
        self.rows = Rows(like, like.logprobs.shape[1])
        self.parts.append(self.rows)
        return self.rows

    def take(self) -> tuple[list[int], Any]:
        """What was kept; nothing is kept then."""
        tokens, parts = self.tokens, self.parts
        self.tokens, self.parts, self.rows = [], [], None
        return tokens, joined([p.arrays() if isinstance(p, Rows) else p for p in parts])


def joined(parts: list[Any]) -> Any:
    """LogprobsLists of consecutive tokens as one; None: nobody asked for them.

    A step has as many columns as any of its requests asked for. So what all parts have is what theirs asked for, at
    least, and the rest is nobody's.
    """
    if len(parts) < 2:
        return parts[0] if parts else None
    ids, values, ranks, *_ = zip(*parts, strict=True)
    widths = {i.shape[1] for i in ids}
    if len(widths) > 1:
        ids, values = ([rows[:, : min(widths)] for rows in column] for column in (ids, values))
    return type(parts[0])(*map(np.concatenate, (ids, values, ranks)))


def may_wait(request: Any) -> bool:
    """Whether a request's tokens can wait for others."""
    return request is not None and not request.sampling_params.stop


class Outputs:
    """Puts what the steps of an engine bring into its output queue, `interval` tokens of a request at a time.

    put: the queue's own. requests: those that the engine knows, by their ids. What ends a request, its first token and
    whatever is more than tokens are handed on at once, with the tokens kept before. So are tokens of requests with stop
    strings, which the front end looks for: it would see too late that tokens behind one are none of the answer.
    """

    def __init__(self, put: Callable[[Any], None], requests: Mapping[str, Any], interval: int) -> None:
        self.put_on, self.requests, self.interval = put, requests, interval
        self.kept: dict[str, Kept] = {}
        self.versions: dict[int, Any] = {}  # of the weights that sampled what is kept, of each front end

    def put(self, item: Any) -> None:
        """In the place of the queue's put_nowait."""
        if not isinstance(item, tuple) or not getattr(item[1], "outputs", None):
            self.put_on(item)
            return
        client, step = item
        version = getattr(step, "weight_version", None)
        if version != self.versions.get(client):
            self.hand_on(client, type(step))
            self.versions[client] = version
        step.outputs = [ready for o in step.outputs if (ready := self.take(client, o)) is not None]
        if len(self.kept) > len(self.requests):  # some were aborted; what ends others of other front ends is to come
            self.kept = {n: k for n, k in self.kept.items() if n in self.requests or k.client != client}
        if step.outputs or step.scheduler_stats is not None or step.finished_requests:
            self.put_on(item)

    def take(self, client: int, output: Any) -> Any:
        """What is to be handed on now, if anything. Of each token of each request: what is looked for once is not
        looked for again, and nothing is called that need not be."""
        name = output.request_id
        kept, request = self.kept.get(name), self.requests.get(name)
        if kept is not None and request is not None and request is not kept.request:
            kept = None  # of one that was aborted, whose id is used again
        waits = self.plain(output) and (kept is not None or may_wait(request))
        if kept is None:
            if not waits:
                return output
            self.kept[name] = kept = Kept(client, request, output)
        kept.add(output.new_token_ids, output.new_logprobs)
        if waits and len(kept.tokens) < self.interval:
            return None
        if not waits:
            self.kept.pop(name, None)
        output.new_token_ids, output.new_logprobs = kept.take()
        return output

    def plain(self, output: Any) -> bool:
        """Whether there are tokens and nothing else."""
        read, nothing = others(type(output))
        try:
            return bool(output.new_token_ids) and read(output) == nothing
        except ValueError:  # an array, which compares number by number
            return False

    def hand_on(self, client: int, container: type) -> None:
        """Everything that is kept for a front end: other weights sample what comes next."""
        outputs = []
        for name, kept in self.kept.items():
            if kept.client == client and kept.tokens:
                tokens, logprobs = kept.take()
                like = kept.output
                outputs.append(type(like)(name, tokens, new_logprobs=logprobs, trace_headers=like.trace_headers))
        if outputs:
            more = {"weight_version": version} if (version := self.versions.get(client)) is not None else {}
            self.put_on((client, container(outputs=outputs, **more)))


def install() -> None:
    """Lets every engine of this process and of those that it forks keep tokens."""
    try:
        from vllm.v1.engine.core import EngineCoreProc
    except ImportError:
        return
    run = getattr(EngineCoreProc, "run_busy_loop", None)
    if run is None or hasattr(run, "of_vllm"):
        return

    def run_busy_loop(engine: Any) -> Any:
        keep(engine)
        return run(engine)

    run_busy_loop.of_vllm = run
    EngineCoreProc.run_busy_loop = run_busy_loop


def keep(engine: Any) -> None:
    """Changes what puts outputs into the engine's queue, where there is something to keep."""
    queue = getattr(engine, "output_queue", None)
    requests = getattr(getattr(engine, "scheduler", None), "requests", None)
    settings = getattr(getattr(engine, "vllm_config", None), "scheduler_config", None)
    interval = getattr(settings, "stream_interval", 1)
    if queue is not None and requests is not None and interval > 1 and "put_nowait" not in vars(queue):
        outputs = Outputs(queue.put_nowait, requests, interval)
        queue.put_nowait = outputs.put
        logging.getLogger("vllm").info("recipe: tokens leave the engine %d at a time", interval)
        recipe_steps.begin(engine, outputs)
