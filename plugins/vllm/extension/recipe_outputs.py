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

#: What an output may hold without being handed on at once; headers are those of its request.
TOKENS = ("request_id", "new_token_ids", "new_logprobs", "trace_headers")


@cache
def others(output: type) -> tuple[attrgetter, tuple[Any, ...]]:
    """What reads the other members of an output, and what they are when there is nothing in them."""
    members = output.__struct_fields__
    without = dict(zip(reversed(members), reversed(output.__struct_defaults__), strict=False))
    names = [m for m in members if m not in TOKENS]
    return attrgetter(*names), tuple(without.get(m) for m in names)


class Kept:
    """Tokens of one request that are not handed on yet."""

    __slots__ = ("output", "parts", "tokens")

    def __init__(self, output: Any) -> None:
        self.output, self.tokens = output, list(output.new_token_ids)
        self.parts = [output.new_logprobs]

    def all(self, output: Any) -> Any:
        """The output with all tokens, those kept before it."""
        output.new_token_ids, output.new_logprobs = self.tokens, joined(self.parts)
        return output


def joined(parts: list[Any]) -> Any:
    """LogprobsLists of consecutive tokens as one; None: nobody asked for them."""
    if None in parts:
        parts = [p for p in parts if p is not None]
    if len(parts) < 2:
        return parts[0] if parts else None
    columns = [np.concatenate(c) if isinstance(c[0], np.ndarray) else c[0] for c in zip(*parts, strict=True)]
    return type(parts[0])(*columns)


class Outputs:
    """Puts what the steps of an engine bring into its output queue, `interval` tokens of a request at a time.

    put: the queue's own. requests: those that the engine knows, by their ids. What ends a request, its first token and
    whatever is more than tokens are handed on at once, with the tokens kept before. So are tokens of requests with stop
    strings, which the front end looks for: it would see too late that tokens behind one are none of the answer.
    """

    def __init__(self, put: Callable[[Any], None], requests: Mapping[str, Any], interval: int) -> None:
        self.put_on, self.requests, self.interval = put, requests, interval
        self.kept: dict[int, dict[str, Kept]] = {}  # of each front end
        self.versions: dict[int, Any] = {}  # of the weights that sampled what is kept

    def put(self, item: Any) -> None:
        """In the place of the queue's put_nowait."""
        if not isinstance(item, tuple) or not getattr(item[1], "outputs", None):
            self.put_on(item)
            return
        client, step = item
        kept = self.kept.setdefault(client, {})
        version = getattr(step, "weight_version", None)
        if version != self.versions.get(client):
            self.hand_on(client, type(step))
            self.versions[client] = version
        step.outputs = [ready for o in step.outputs if (ready := self.take(kept, o)) is not None]
        if len(kept) > len(self.requests):  # some were aborted
            self.kept[client] = {name: k for name, k in kept.items() if name in self.requests}
        if step.outputs or step.scheduler_stats is not None or step.finished_requests:
            self.put_on(item)

    def take(self, kept: dict[str, Kept], output: Any) -> Any:
        """What is to be handed on now, if anything. Of each token of each request: what is looked for once is not
        looked for again, and nothing is called that need not be."""
        name, tokens = output.request_id, output.new_token_ids
        before = kept.get(name)
        waits = self.plain(output) and (before is not None or self.may_wait(name))
        if before is not None:
            before.tokens += tokens
            before.parts.append(output.new_logprobs)
        elif waits:
            kept[name] = before = Kept(output)
        else:
            return output
        if waits and len(before.tokens) < self.interval:
            return None
        del kept[name]
        return before.all(output)

    def plain(self, output: Any) -> bool:
        """Whether there are tokens and nothing else."""
        read, nothing = others(type(output))
        try:
            return bool(output.new_token_ids) and read(output) == nothing
        except ValueError:  # an array, which compares number by number
            return False

    def may_wait(self, name: str) -> bool:
        """Whether a request's tokens can wait for others."""
        request = self.requests.get(name)
        return request is not None and not request.sampling_params.stop

    def hand_on(self, client: int, container: type) -> None:
        """Everything that is kept for a front end: other weights sample what comes next."""
        kept = self.kept.get(client)
        if not kept:
            return
        more = {"weight_version": version} if (version := self.versions.get(client)) is not None else {}
        self.put_on((client, container(outputs=[k.all(k.output) for k in kept.values()], **more)))
        kept.clear()


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
        queue.put_nowait = Outputs(queue.put_nowait, requests, interval).put
        logging.getLogger("vllm").info("recipe: tokens leave the engine %d at a time", interval)
