"""Taking turns on a GPU: the worker asks before each batch, releases what only training needs, and ends every turn."""

from recipe_sdk.testing import make_group, wait_for


def test_each_turn_ends_with_an_offer_of_weights(make, api):
    w = make(api().url, steps=2, wait_for_sync=True, optimizer={"offload": True}).background()
    for step in (1, 2):
        assert w.supervisor.asked["sync"].empty(), "the weights are offered after the turn"
        assert w.answer("turn", shared=True) == {"step": step}
        assert w.supervisor.wanted("sync") == {"step": step} and w.bridge.step == step
        assert w.call("publish", version=step, transport="none")[0] == "ok"
        assert w.answer("sync", version=step, shared=True) == {"step": step}
    w.join()
    assert w.reason == "completed" and w.bridge.version == 2


def test_a_batch_that_comes_to_nothing_ends_its_turn(make, api):
    def batch(k):
        groups = [make_group(100 * k + j) for j in range(2)]
        if k == 0:
            for g in groups:
                g["masks"] = [[-100] * len(m) for m in g["masks"]]
        return groups

    w = make(api(batch=batch).url, steps=1, wait_for_sync=True).background()
    w.answer("turn", shared=True)
    assert w.answer("sync", shared=True) == {"step": 0}, "nothing of the first batch can be trained"
    assert w.answer("turn", shared=True) == {"step": 1}
    assert w.answer("sync", shared=True) == {"step": 1}
    w.join()
    assert w.bridge.step == 1


def test_turns_are_requested_only_on_a_shared_device(make, api):
    w = make(api().url, steps=3, wait_for_sync=True).background()
    wait_for(w, "turn")
    assert w.call("logprobs", token_ids=[3, 4])[0] == "ok"  # commands are handled meanwhile
    wait_for(w, "turn")
    assert w.answer("turn", shared=False) == {"step": 1}
    assert w.answer("sync") == {"step": 1, "ahead": True}
    assert w.answer("sync", shared=True) == {"step": 2, "ahead": True}  # from now on it is shared
    assert w.answer("turn", shared=True) == {"step": 3}
    w.answer("sync")
    w.join()
    assert w.bridge.step == 3 and w.supervisor.asked["turn"].empty()
