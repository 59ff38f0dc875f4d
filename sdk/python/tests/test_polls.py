"""How often the trajectory API is asked for a batch: the device idles from a batch's arrival to the next poll."""

from types import SimpleNamespace

import pytest

from recipe_sdk import rollouts
from recipe_sdk.rollouts import Delivery, Rollouts


@pytest.fixture
def polls(monkeypatch):
    """Polls until a batch arrives, on a clock that only delays move: [(waited before, delay)], seconds too late."""
    data = SimpleNamespace(
        batch_retry_attempts=8, batch_retry_delay=0.05, batch_max_wait=12.0,
        url="http://127.0.0.1:9", token="", timeout=1.0,
    )  # fmt: skip
    clock, start, delays = [1000.0], [0.0], []

    def pause(seconds):
        delays.append((clock[0] - start[0], seconds))
        clock[0] += seconds

    feed = Rollouts(SimpleNamespace(data=data), None, SimpleNamespace(cursor=0), pause)
    monkeypatch.setattr(rollouts.time, "monotonic", lambda: clock[0])

    def run(arrives):
        start[0] = clock[0]
        delays.clear()
        feed.poll = lambda: Delivery(1, [], False) if clock[0] - start[0] >= arrives else None
        while feed.round(lambda: False) is None:
            pass
        return list(delays), clock[0] - start[0] - arrives

    return run


@pytest.mark.parametrize("arrives,most", [(1.0, 21), (4.0, 60), (100.0, 120)])
def test_a_batch_is_at_most_a_twentieth_late(polls, arrives, most):
    for _ in range(2):  # each wait begins with short delays
        delays, late = polls(arrives)
        assert delays[0] == (0.0, 0.05)
        assert 0 <= late <= max(0.05, arrives / 20)
        assert all(delay <= max(0.05, waited / 20) + 1e-9 for waited, delay in delays)
        assert len(delays) <= most


def test_a_long_wait_polls_at_the_longest_delay(polls):
    delays, _ = polls(1000.0)
    assert max(delay for _, delay in delays) == 12.0
