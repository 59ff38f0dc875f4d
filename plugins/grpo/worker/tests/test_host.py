"""What is settled on the CPU before the first step on a GPU."""

import gc

import pytest
import torch

from worker import host


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)
    gc.unfreeze()


@pytest.mark.parametrize(("device", "given", "want", "frozen"), [
    ("cuda", 0, 1, True), ("cuda", 3, 3, True), ("cpu", 0, 3, False),
])  # fmt: skip
def test_the_default_beside_a_gpu_is_one_thread(threads, device, given, want, frozen):
    host.calm(torch.device(device), given)
    assert torch.get_num_threads() == want
    host.settle(torch.device(device))
    assert (gc.get_freeze_count() > 0) == frozen
