"""No look at the KV cache for a token that needs no block of its own.

For each token of each sequence vLLM's engine asks its KV cache for a slot, through a dozen calls, and then whether a
block has become full. Of 16 tokens 15 need no block and fill none. The engine is a single Python process: with 256
sequences of a small model it decides how fast they are decoded, and this is a quarter of its work
(docs/benchmarks/gpu.md). Here the two questions are answered from the numbers that vLLM keeps; whatever else is asked,
vLLM answers itself.

vLLM finds `install` by the entry point in recipe_vllm.dist-info, in each of its processes. What vLLM would have done
has to be nothing, which was read in its code: where that code is not one of `READ`, nothing is changed.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import logging
import textwrap
import tokenize
from collections.abc import Callable, Collection, Iterator
from typing import Any

#: What the answer depends on, in the classes of a cache, of its coordinator and of the manager of its blocks.
METHODS = (
    "allocate_new_blocks",
    "allocate_slots",
    "cache_blocks",
    "create_kv_cache_blocks",
    "get_num_blocks_to_allocate",
    "get_num_cacheable_tokens",
    "get_num_skipped_tokens",
    "remove_skipped_blocks",
)
#: What of a source says nothing of what it does.
LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
#: The code of those, as `digest` has it, for models whose layers all attend to everything; and the versions it is of.
READ: dict[str, str] = {
    "e835132d67923405": "0.24.0",
    "24f3125c21666106": "0.25.0, 0.25.1",
    "a977522f2ccd7616": "0.26.0, 0.27.0, 0.27.1",
    "a8c160b667c53b17": "0.28.0",
    "34eafa58a3aa32ef": "0.29.0",
    "74c15eb000118c24": "0.30.0",
    "5b273af51eda3ab6": "0.31.0",
    "5eaa056dd3eba928": "0.32.0",
    "2bda6ee38f7a237f": "0.33.0",
}


def install() -> None:
    """Has each cache of this process answer so."""
    try:
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.request import RequestStatus
    except ImportError:
        return
    begin = KVCacheManager.__init__
    if hasattr(begin, "of_vllm"):
        return

    def __init__(cache: Any, *args: Any, **kwargs: Any) -> None:
        begin(cache, *args, **kwargs)
        answer(cache, RequestStatus.RUNNING)

    __init__.of_vllm = begin
    KVCacheManager.__init__ = __init__


def answer(cache: Any, running: Any) -> bool:
    """Whether a KVCacheManager's `allocate_slots` and `cache_blocks` are answered here from now on.

    running: the status of requests that have their prompt's blocks.
    """
    coordinator = getattr(cache, "coordinator", None)
    managers = getattr(coordinator, "single_type_managers", ())
    if len(managers) != 1 or digest(METHODS, *map(type, (cache, coordinator, managers[0]))) not in READ:
        return False
    blocks = managers[0]
    if blocks.block_size != coordinator.block_pool.hash_block_size:  # a prompt's last block is cached before it is full
        return False
    cache.room = room(cache, blocks)
    cache.allocate_slots = allocate_slots(cache, blocks, running)
    cache.cache_blocks = cache_blocks(cache, blocks)
    logging.getLogger("vllm").info("recipe: blocks are looked for once in %d tokens", blocks.block_size)
    return True


def allocate_slots(cache: Any, blocks: Any, running: Any) -> Callable[..., Any]:
    """In the place of a cache's own: no new blocks, where a running request has room and no full block to enter."""
    nothing, ask, enough = cache.empty_kv_cache_blocks, cache.allocate_slots, room(cache, blocks)

    def allocate_slots(
        request: Any, num_new_tokens: int, *args: Any, num_lookahead_tokens: int = 0, **more: Any
    ) -> Any:
        if request.status is running and num_new_tokens > 0 and not args and not more:
            tokens = request.num_computed_tokens + num_new_tokens
            if enough(request.request_id, tokens + num_lookahead_tokens, min(tokens, request.num_tokens)):
                return nothing
        return ask(request, num_new_tokens, *args, num_lookahead_tokens=num_lookahead_tokens, **more)

    return allocate_slots


def room(cache: Any, blocks: Any) -> Callable[..., bool]:
    """Whether a request's blocks have room for so many tokens, and none is to be entered that so many sampled ones
    fill."""
    held, entered, size, caches = blocks.req_to_blocks, blocks.num_cached_block, blocks.block_size, cache.enable_caching
    shared = getattr(blocks, "_partial_hit_reqs", ())  # whose last block is copied before it is written to

    def enough(name: str, tokens: int, sampled: int) -> bool:
        return (
            len(held.get(name, ())) * size >= tokens
            and name not in shared
            and (not caches or entered.get(name, 0) >= sampled // size)
        )

    return enough


def cache_blocks(cache: Any, blocks: Any) -> Callable[[Any, int], None]:
    """In the place of a cache's own: nothing, where all full blocks are entered."""
    entered, size, enter = blocks.num_cached_block, blocks.block_size, cache.cache_blocks

    def cache_blocks(request: Any, num_computed_tokens: int) -> None:
        if entered.get(request.request_id, 0) < num_computed_tokens // size:
            enter(request, num_computed_tokens)

    return cache_blocks


def digest(names: Collection[str], *of: Any) -> str:
    """Of the code of functions, and of all methods of that name of classes and those that they are derived from; not
    of comments."""
    code = "\n".join(plain(source) for one in of for source in sources(names, one))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def sources(names: Collection[str], of: Any) -> Iterator[str]:
    """The source of a function, or of each of a class's methods."""
    if not isinstance(of, type):
        yield inspect.getsource(of)
        return
    for owner in of.__mro__:
        for name in names:
            if name in vars(owner):
                yield inspect.getsource(vars(owner)[name])


def plain(source: str) -> str:
    """A function's source without comments, docstring and layout."""
    return " ".join(t for t in words(textwrap.dedent(source)) if not t.startswith('"""'))


def words(source: str) -> Iterator[str]:
    """Its tokens; an f-string is one, as it is to Python until 3.11."""
    lines, inside, begin = source.splitlines(keepends=True), 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            inside, begin = inside + 1, begin if inside else token.start
        elif kind == "FSTRING_END":
            inside -= 1
            if not inside:
                yield between(lines, begin, token.end)
        elif not inside and token.type not in LAYOUT:
            yield token.string


def between(lines: list[str], begin: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from one place, a line from 1 on and a column, to another."""
    text = lines[begin[0] - 1 : end[0]]
    text[-1] = text[-1][: end[1]]
    text[0] = text[0][begin[1] :]
    return "".join(text)
