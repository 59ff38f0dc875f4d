"""Slots that are answered without vLLM's cache, on classes with the members of vLLM's."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace

import pytest
import recipe_blocks

RUNNING, WAITING = object(), object()
SIZE = 4


class Blocks:
    """As FullAttentionManager: which blocks a request holds, and how many are entered as full."""

    def __init__(self, size=SIZE):
        self.block_size, self.req_to_blocks, self.num_cached_block = size, defaultdict(list), {}
        self._partial_hit_reqs = {}

    def get_num_skipped_tokens(self, _):
        return 0


class Coordinator:
    def __init__(self, managers, size=SIZE):
        self.single_type_managers, self.block_pool = managers, SimpleNamespace(hash_block_size=size)


class Cache:
    """As KVCacheManager, with `free` blocks."""

    def __init__(self, managers=1, free=100, caching=True, size=SIZE):
        self.coordinator = Coordinator(tuple(Blocks() for _ in range(managers)), size)
        self.enable_caching, self.free, self.asked = caching, free, 0
        self.empty_kv_cache_blocks = ()

    def allocate_slots(self, request, num_new_tokens, num_lookahead_tokens=0, full_sequence_must_fit=False):
        """A request's new blocks; None: there are none left."""
        self.asked += 1
        blocks = self.coordinator.single_type_managers[0]
        held, tokens = blocks.req_to_blocks[request.request_id], request.num_computed_tokens + num_new_tokens
        wanted = -(-(tokens + num_lookahead_tokens) // blocks.block_size) - len(held)
        if wanted > self.free:
            return None
        new = [object() for _ in range(wanted)]
        held += new
        self.free -= len(new)
        blocks._partial_hit_reqs.pop(request.request_id, None)
        self.cache_blocks(request, min(tokens, request.num_tokens))
        return tuple(new)

    def cache_blocks(self, request, num_computed_tokens):
        if self.enable_caching:
            entered, name = self.coordinator.single_type_managers[0].num_cached_block, request.request_id
            if num_computed_tokens // SIZE > entered.get(name, 0):
                entered[name] = num_computed_tokens // SIZE


def request(name="a", status=RUNNING, computed=0, tokens=1):
    return SimpleNamespace(request_id=name, status=status, num_computed_tokens=computed, num_tokens=tokens)


@pytest.fixture
def read(monkeypatch):
    """The code of the classes above is code that was read."""
    of = recipe_blocks.digest(recipe_blocks.METHODS, Cache, Coordinator, Blocks)
    monkeypatch.setattr(recipe_blocks, "READ", {of: "here"})


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_requests_get_the_same_blocks_as_by_the_cache(read, seed, caching):
    """Random requests beside a cache that is asked each time, until both have nothing left."""
    draw = random.Random(seed)
    plain, answered = Cache(caching=caching), Cache(caching=caching)
    assert recipe_blocks.answer(answered, RUNNING)
    requests = [request(str(i)) for i in range(5)]
    given = 0
    while given is not None:
        one, new, ahead = draw.choice(requests), draw.choice([1, 1, 1, 1, 7]), draw.choice([0, 0, 3])
        both = [c.allocate_slots(one, new, num_lookahead_tokens=ahead) for c in (plain, answered)]
        given, ours = (None if b is None else len(b) for b in both)
        assert given == ours
        one.num_computed_tokens += new
        one.num_tokens = one.num_computed_tokens - draw.choice([0, 1, 2])  # as with a step under way
        for cache in (plain, answered):
            cache.cache_blocks(one, one.num_tokens)
        theirs, own = (c.coordinator.single_type_managers[0] for c in (plain, answered))
        assert theirs.num_cached_block == own.num_cached_block
        assert {n: len(b) for n, b in theirs.req_to_blocks.items()} == {n: len(b) for n, b in own.req_to_blocks.items()}
    assert answered.asked < 0.8 * plain.asked


@pytest.mark.parametrize(
    "what",
    [
        {"status": WAITING},  # a prompt, whose blocks may be shared
        {"computed": SIZE},  # no room
        {"computed": SIZE - 1, "tokens": SIZE},  # the block is full, and is not entered
        {"name": "b"},  # holds nothing
    ],
)
def test_the_cache_is_asked_only_where_it_acts(read, what):
    cache = Cache()
    recipe_blocks.answer(cache, RUNNING)
    cache.coordinator.single_type_managers[0].req_to_blocks["a"].append(object())
    cache.allocate_slots(request(**what), 1)
    assert cache.asked == 1


def test_an_unfinished_block_does_not_enter_the_cache(read):
    cache = Cache()
    recipe_blocks.answer(cache, RUNNING)
    cache.coordinator.single_type_managers[0].req_to_blocks["a"].append(object())
    assert cache.allocate_slots(request(computed=SIZE - 1, tokens=SIZE - 1), 1) == ()
    assert cache.asked == 0


def test_the_cache_is_asked_where_room_is_short(read):
    cache = Cache()
    recipe_blocks.answer(cache, RUNNING)
    blocks = cache.coordinator.single_type_managers[0]
    blocks.req_to_blocks["a"].append(object())
    assert cache.allocate_slots(request(), 1) == ()
    assert cache.asked == 0
    cache.allocate_slots(request(), 1, full_sequence_must_fit=True)
    blocks._partial_hit_reqs["a"] = (0, object())  # its block is another's, too, until it has been copied
    cache.allocate_slots(request(), 1)
    assert cache.asked == 2


@pytest.mark.parametrize("other", ["unread", "two kinds of attention", "parts of blocks", "nothing"])
def test_another_cache_is_left_alone(read, monkeypatch, other):
    managers, size = 2 if other == "two kinds of attention" else 1, 2 if other == "parts of blocks" else SIZE
    cache = Cache(managers=managers, size=size)
    if other == "unread":
        monkeypatch.setattr(Blocks, "get_num_skipped_tokens", lambda self, tokens: tokens - 8)
    if other == "nothing":
        cache = SimpleNamespace()
    assert not recipe_blocks.answer(cache, RUNNING)
    assert "allocate_slots" not in vars(cache)


def test_vllm_finds_it_and_each_cache_is_answered(read, monkeypatch, load_plugin):
    """Through the entry point, twice, as each of vLLM's processes loads it."""

    class KVCacheManager(Cache):
        pass

    modules = {n: ModuleType(n) for n in ("vllm", "vllm.v1", "vllm.v1.core")}
    modules["vllm.v1.core.kv_cache_manager"] = SimpleNamespace(KVCacheManager=KVCacheManager)
    modules["vllm.v1.request"] = SimpleNamespace(RequestStatus=SimpleNamespace(RUNNING=RUNNING))
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    load_plugin("recipe_blocks")
    cache = KVCacheManager(free=1)
    assert cache.free == 1
    cache.coordinator.single_type_managers[0].req_to_blocks["a"].append(object())
    assert [cache.allocate_slots(request(), 1), cache.asked] == [(), 0]
    assert vars(KVCacheManager.__init__)["of_vllm"] is Cache.__init__, "wrapped once"


def test_nothing_happens_without_vllm(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    recipe_blocks.install()


def test_a_digest_is_of_what_code_does():
    source = '    def f(self):\n        """It says."""\n        # why\n        return 1\n'
    assert recipe_blocks.plain(source) == recipe_blocks.plain("def f(self):\n    return 1\n")
    assert recipe_blocks.plain(source) != recipe_blocks.plain("def f(self):\n    return 2\n")


def test_a_digest_is_the_same_on_every_python():
    """An f-string is several tokens since Python 3.12."""
    source = 'def f(x):\n    return f"a {x + 1!r:>{ x }} {{b}}" + "c"\n'
    assert recipe_blocks.plain(source) == 'def f ( x ) : return f"a {x + 1!r:>{ x }} {{b}}" + "c" '
    assert recipe_blocks.plain('f"""a\n{x}"""\n') == 'f"""a\n{x}""" '
