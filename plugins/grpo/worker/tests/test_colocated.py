"""Taking turns on a GPU: the worker asks before each batch, gives back what training alone needs, and ends every turn."""

import time

import pytest
import torch
from recipe_sdk.testing import make_group, wait_for

from worker import turns


def test_each_turn_ends_with_an_offer_of_weights(make, api):
    w = make(api().url, steps=2, wait_for_grant=True, wait_for_sync=True, optimizer={"offload": True}).background()
    for step in (1, 2):
        wait_for(w, "grant")
        assert w.call("POST", "/grant", {})[0] == 200
        wait_for(w, "sync")
        assert w.bridge.step == step
        assert w.call("POST", "/publish", {"version": step, "transport": "none"})[0] == 200
        assert w.call("POST", "/synced", {"version": step})[0] == 200
    w.join()
    assert w.reason == "completed"


def test_a_batch_that_comes_to_nothing_ends_its_turn(make, api):
    def batch(k):
        groups = [make_group(100 * k + j) for j in range(2)]
        if k == 0:
            for g in groups:
                g["masks"] = [[-100] * len(m) for m in g["masks"]]
        return groups

    w = make(api(batch=batch).url, steps=1, wait_for_grant=True, wait_for_sync=True).background()
    wait_for(w, "grant")
    assert w.call("POST", "/grant", {})[0] == 200
    wait_for(w, "sync")
    assert w.bridge.step == 0, "nothing of the first batch can be trained"
    assert w.call("POST", "/synced", {"version": 0})[0] == 200
    wait_for(w, "grant")
    assert w.call("POST", "/grant", {})[0] == 200
    wait_for(w, "sync")
    assert w.call("POST", "/synced", {"version": 0})[0] == 200
    w.join()
    assert w.bridge.step == 1


def test_a_grant_counts_for_the_batch_that_waits_and_for_no_other(make, api):
    w = make(api().url, steps=2, wait_for_grant=True, wait_for_sync=True).background()
    wait_for(w, "grant")
    for _ in range(2):
        assert w.call("POST", "/grant", {})[0] == 200
    wait_for(w, "sync")
    assert w.call("POST", "/grant", {})[0] == 200  # late: nothing waits
    assert w.call("POST", "/synced", {"version": 0})[0] == 200
    wait_for(w, "grant")
    time.sleep(0.2)
    assert w.bridge.step == 1 and w.call("GET", "/state")[1]["phase"] == "grant"
    # Nobody shares the device any more: it goes on by itself.
    assert w.call("POST", "/update", {"wait_for_grant": False})[0] == 200
    wait_for(w, "sync")
    assert w.call("POST", "/synced", {"version": 0})[0] == 200
    w.join()
    assert w.bridge.step == 2


@pytest.mark.parametrize("fused", [False, True])
def test_offloading_the_optimizer_changes_nothing(fused):
    def run(away):
        torch.manual_seed(0)
        p = torch.nn.Parameter(torch.randn(5, 3))
        optimizer = torch.optim.AdamW([p], 0.1, fused=fused)
        for k in range(4):
            turns.occupy(optimizer, torch.device("cpu"), away)
            p.grad = torch.full_like(p, 0.1 * (k + 1))
            optimizer.step()
            turns.vacate(optimizer, torch.device("cpu"), away)
        return p.detach()

    assert torch.equal(run(False), run(True))


def test_moments_move_and_the_step_counter_stays():
    p = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.AdamW([p], 0.1)
    p.grad = torch.ones(4)
    optimizer.step()
    turns.occupy(optimizer, torch.device("meta"), True)  # stands for a device that is not the host
    state = optimizer.state[p]
    assert state["exp_avg"].device.type == state["exp_avg_sq"].device.type == "meta"
    assert state["step"].device.type == "cpu"
