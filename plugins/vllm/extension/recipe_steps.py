"""Steps in which almost every sequence gets its next token and nothing else happens to it.

vLLM's engine asks of each sequence in each step what could be the matter with it: draft tokens, images, adapters,
grammars, preemption. The engine is a single Python process, and with 256 sequences of a small model a GPU waits for
it. Here a step begins with one short pass over the sequences of which the answer is known: they decode, their next
token ends nothing, and their last block has room. vLLM's own functions do the rest of the step, as if the others were
all there are; what a sequence is after the pass is what they would have made of it.

vLLM finds `install` by the entry point in recipe_vllm.dist-info, in each of its processes; recipe_outputs, which keeps
the tokens, calls `begin`. What the pass may do was read in vLLM's code: where that is not one of `READ`, and wherever a
step has anything else in it, vLLM does all.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection
from typing import Any

import recipe_blocks

#: Members of a scheduler that are None or false where tokens are all that a step brings.
MORE = (
    "aux_output_connector",
    "connector",
    "ec_connector",
    "enable_return_routed_experts",
    "is_encoder_decoder",
    "num_lookahead_tokens",
    "num_spec_tokens",
    "perf_metrics",
    "return_sampling_mask",
    "use_pp",
)
#: Members of a model's output that are None or empty where it brings tokens alone.
BESIDE = (
    "aux_output_connector_output",
    "ec_connector_output",
    "kv_connector_output",
    "num_nans_in_logits",
    "pooler_output",
    "prompt_logprobs_dict",
    "prompt_token_id_logprobs_dict",
    "routed_experts",
    "sampling_masks",
)
#: What a pass stands in for, in the classes of a scheduler and of requests.
METHODS = (
    "_make_cached_request_data",
    "_update_after_schedule",
    "_update_request_with_output",
    "append_output_token_ids",
    "schedule",
    "slice_request",
    "update_block_hashes",
    "update_from_output",
)
#: Their code and that of `check_stop`, as recipe_blocks.digest has it; and the versions that it is of.
READ: dict[str, str] = {
    "fab76b65d95c7ca0": "0.24.0",
    "070526093af964ea": "0.25.0, 0.25.1",
    "71c220445ea97e35": "0.26.0",
    "b9139debbacf6fc6": "0.27.0, 0.27.1",
    "5a027270a0b980b8": "0.28.0",
    "5c66fb057de717cb": "0.29.0",
    "de1ac8eb6c30ed96": "0.30.0",
    "2b974ad358b361e7": "0.31.0",
    "538ceb4852cc512b": "0.32.0",
    "1f368b60b0ba7121": "0.33.0",
    # the same where one step ends before the next is scheduled, as on a CPU
    "1c5cd736ad447c1a": "0.24.0",
    "1793b5dc609e4cc3": "0.25.0, 0.25.1",
    "49eaa664e437f7b1": "0.26.0",
    "dc5d429c175003df": "0.27.0, 0.27.1",
    "39a688981f1e9979": "0.28.0",
    "0e4216495af604f1": "0.29.0",
    "a88af808f58ee45b": "0.30.0",
    "a944f87fd083028c": "0.31.0",
    "1f0638a42305241e": "0.32.0",
    "2d5b745a6c051b83": "0.33.0",
}


#: The member of a request that has what is known of it.
KNOWN = "known_to_recipe"
#: Whether vLLM has asked for it in this process.
asked = False


def install() -> None:
    """Has every engine of this process begin its steps so, and of those that it forks."""
    global asked
    asked = True


def begin(engine: Any, outputs: Any) -> bool:
    """Whether the steps of an engine begin with a pass from now on. outputs: a recipe_outputs.Outputs."""
    if not asked:
        return False
    try:
        from vllm.v1.core.sched.utils import check_stop
        from vllm.v1.outputs import LogprobsLists
        from vllm.v1.request import Request, RequestStatus
    except ImportError:
        return False
    scheduler = engine.scheduler
    code = recipe_blocks.digest(METHODS, type(scheduler), Request, LogprobsLists, check_stop)
    room = getattr(scheduler.kv_cache_manager, "room", None)  # by recipe_blocks
    more = [name for name in MORE if getattr(scheduler, name, None)]
    log = logging.getLogger("vllm")
    if code not in READ or more or room is None:
        why = f"it has {', '.join(more)}" if more else f"its code is {code}" if room else "its cache is not answered"
        log.info("recipe: vLLM looks at every sequence in every step itself: %s", why)
        return False
    steps = Steps(engine, outputs, room, RequestStatus.RUNNING, Request.__init__.__code__.co_names)
    scheduler.schedule, scheduler.update_from_output = steps.schedule, steps.update_from_output
    log.info("recipe: sequences that only decode are scheduled and read in one pass")
    return True


class Known:
    """What stays as it is while a request decodes; it is asked once and goes with the request.

    simple: nothing but a token can come of a step. end: how many tokens it has when it ends. stops: tokens that end it.
    logprobs: whether it wants any.
    """

    __slots__ = ("end", "logprobs", "simple", "stops")

    def __init__(self, request: Any, longest: int) -> None:
        params = request.sampling_params
        self.simple = (
            params is not None
            and request.pooling_params is None
            and request.structured_output_request is None
            and not request.mm_features
            and not request.resumable
            and getattr(params, "repetition_detection", None) is None
        )
        self.end = min(request.num_prompt_tokens + request.max_tokens, longest)
        self.stops = frozenset(params.stop_token_ids or ()) | {params.eos_token_id} if self.simple else frozenset()
        self.logprobs = self.simple and params.num_logprobs is not None


class Steps:
    """The passes over the requests of one engine's scheduler.

    room: recipe_blocks.room of its cache. running: the status of one that decodes. members: what requests of this vLLM
    have. ahead: a step is scheduled while the one before is under way, whose tokens are counted as placeholders.
    """

    def __init__(
        self, engine: Any, outputs: Any, room: Callable[..., bool], running: Any, members: Collection[str]
    ) -> None:
        self.engine, self.outputs, self.room, self.running = engine, outputs, room, running
        self.ahead = any(owner.__name__ == "AsyncScheduler" for owner in type(engine.scheduler).__mro__)
        self.in_flight = "num_in_flight_tokens" in members
        self.stale = "num_stale_output_tokens" if "num_stale_output_tokens" in members else "async_tokens_to_discard"
        self.scheduler = scheduler = engine.scheduler
        self.block = scheduler.kv_cache_manager.coordinator.block_pool.hash_block_size
        self.of_vllm = scheduler.schedule, scheduler.update_from_output

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """In the place of the scheduler's own: it schedules the others, then has those of the pass beside them."""
        scheduler, (schedule, _) = self.scheduler, self.of_vllm
        running = scheduler.running
        throttled = any((*args, *kwargs.values()))
        others, plain = ([], []) if throttled else self.divide(running)
        if not plain or not self.alone(len(running), len(others)):
            return schedule(*args, **kwargs)
        make, after = scheduler._make_cached_request_data, scheduler._update_after_schedule
        nothing = scheduler.kv_cache_manager.empty_kv_cache_blocks

        def with_plain(requests: list[Any], resumed: Any, tokens: dict[str, int], drafts: Any, blocks: Any) -> Any:
            both = dict.fromkeys([r.request_id for r in plain], 1) | tokens
            blocks.update(dict.fromkeys(both.keys() - tokens.keys(), nothing))
            tokens.clear()
            tokens.update({name: both[name] for r in running if (name := r.request_id) in both})
            return make([r for r in running if r.request_id in both], resumed, tokens, drafts, blocks)

        def counted(step: Any) -> None:
            step.total_num_scheduled_tokens += len(plain)
            after(step)

        scheduler._make_cached_request_data, scheduler._update_after_schedule = with_plain, counted
        scheduler.running = others
        try:
            return schedule(*args, **kwargs)
        finally:
            scheduler.running = running
            del scheduler._make_cached_request_data, scheduler._update_after_schedule

    def divide(self, running: list[Any]) -> tuple[list[Any], list[Any]]:
        """Requests that have to be looked at, and those of which this step decodes a token. Of these the first is
        looked at as well, so that vLLM never finds itself with nothing to do."""
        others: list[Any] = []
        plain: list[Any] = []
        room, longest = self.room, self.scheduler.max_model_len
        for request in running:
            one = getattr(request, KNOWN, None)
            if one is None:
                one = Known(request, longest)
                setattr(request, KNOWN, one)
            computed, waiting = request.num_computed_tokens, request.num_output_placeholders
            if request.is_prefill_chunk:
                return [], []
            sampled = len(request._all_token_ids)
            if (
                one.simple
                and sampled + waiting == computed + 1
                and computed + 2 - waiting < one.end
                and computed + 2 <= longest
                and not request.spec_token_ids
                and room(request.request_id, computed + 1, sampled)
            ):
                plain.append(request)
            else:
                others.append(request)
        if plain:
            others.append(plain.pop(0))
        return others, plain

    def alone(self, running: int, others: int) -> bool:
        """Whether nothing but decoding can come of a step: nobody waits, there is time for all, and blocks, of which
        one to look at may need two, if it copies a shared one."""
        scheduler = self.scheduler
        return (
            scheduler.get_request_counts()[1] == 0
            and scheduler._pause_state == 0
            and running <= scheduler.max_num_scheduled_tokens
            and scheduler.kv_cache_manager.block_pool.get_num_free_blocks() > 2 * others
        )

    def update_from_output(self, step: Any, output: Any) -> Any:
        """In the place of the scheduler's own: the pass keeps tokens of requests whose tokens wait anyway, then it
        reads what the others have."""
        _, update = self.of_vllm
        logprobs = output.logprobs
        if (
            not output.sampled_token_ids
            or step.scheduled_spec_decode_tokens
            or any(getattr(output, name, None) for name in BESIDE)
            or (logprobs is not None and logprobs.cu_num_generated_tokens is not None)
            or not self.of_these_weights()
        ):
            return update(step, output)
        others = self.read(step.num_scheduled_tokens, output)
        if len(others) < len(step.num_scheduled_tokens):
            step = copy.copy(step)
            step.num_scheduled_tokens = others
        return update(step, output)

    def of_these_weights(self) -> bool:
        """Whether what is kept for each front end was sampled by the weights that this step's tokens are of."""
        version = getattr(self.engine, "_weight_version", None)
        return all(kept == version for kept in self.outputs.versions.values())

    def read(self, scheduled: dict[str, int], output: Any) -> dict[str, int]:
        """Takes the tokens of the requests that are left as they are by them; those that are not, with the numbers of
        their tokens. What is done to a request here is what vLLM does to one of which nothing else is to be said."""
        index, sampled, like = output.req_id_to_index, output.sampled_token_ids, output.logprobs
        ids, values, ranks = (c.tolist() for c in like[:3]) if like is not None else ([], [], [])
        width = like.logprobs.shape[1] if like is not None else 0
        kept_of, running, block = self.outputs.kept, self.running, self.block
        last, enter = self.outputs.interval - 1, self.scheduler.kv_cache_manager.cache_blocks
        stale, in_flight, ahead = self.stale, self.in_flight, self.ahead
        others: dict[str, int] = {}
        for name, tokens in scheduled.items():
            kept, new = kept_of.get(name), sampled[i := index[name]]
            if kept is None or tokens != 1 or len(new) != 1 or len(kept.tokens) >= last:
                others[name] = tokens
                continue
            request, token = kept.request, new[0]
            one, text = getattr(request, KNOWN, None), request._all_token_ids
            full = len(text) + 1
            if (
                one is None
                or request.status is not running
                or not one.simple
                or token in one.stops
                or full >= one.end
                or (one.logprobs and like is None)
                or request.events
                or request.prefill_stats is not None
                or getattr(request, stale)
            ):
                others[name] = tokens
                continue
            if full % block:
                request._output_token_ids.append(token)
                text.append(token)
            else:
                request.append_output_token_ids(token)
            if in_flight:
                request.num_in_flight_tokens -= 1
            if ahead:
                request.num_output_placeholders -= 1
                done = request.num_computed_tokens - request.num_output_placeholders
                if done % block == 0:
                    enter(request, done)
            kept.tokens.append(token)
            if one.logprobs:
                rows = kept.rows
                if rows is None or rows.width != width:
                    rows = kept.begin(like)
                rows.ids.append(ids[i])
                rows.values.append(values[i])
                rows.ranks.append(ranks[i])
        return others
