"""A device that multiplies wrong is told from one that rounds."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recipe_sdk import products
from recipe_sdk.errors import WorkerError

CPU = torch.device("cpu")


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.a = nn.Linear(96, 320), nn.Linear(320, 96), nn.Linear(96, 8)


@pytest.fixture(autouse=True)
def short_rows(monkeypatch):
    monkeypatch.setattr(products, "TOKENS", (16, 512))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rounding_is_not_wrong(dtype):
    products.compare(Adapted(), CPU, dtype)


def test_nothing_is_drawn_from_the_runs_random_numbers():
    model = Adapted()
    before = torch.get_rng_state()
    products.compare(model, CPU, torch.float32)
    assert torch.equal(before, torch.get_rng_state())


def tile_left_out(y):
    """As cuBLAS was seen to do it: a part of the numbers is never written."""
    y[: y.shape[0] // 4, : y.shape[1] // 4] = 0
    return y


def half_summed(y):
    return y / 2


def not_finite(y):
    y[: y.shape[0] // 4] = torch.nan
    return y


@pytest.mark.parametrize("spoil", [tile_left_out, half_summed, not_finite])
@pytest.mark.parametrize("kind", [products.FORWARD, products.INPUT, products.WEIGHT])
def test_each_kind_of_product_is_compared(monkeypatch, spoil, kind):
    """kind: the only one that comes out wrong, told by how its factors lie in memory."""
    right_one = torch.Tensor.__matmul__

    def multiply(left, right):
        lies = (not left.is_contiguous(), not right.is_contiguous())
        seen = {(False, True): products.FORWARD, (False, False): products.INPUT, (True, False): products.WEIGHT}[lies]
        return spoil(right_one(left, right)) if seen == kind else right_one(left, right)

    monkeypatch.setattr(torch.Tensor, "__matmul__", multiply)
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "60")
    with pytest.raises(WorkerError) as refused:
        products.compare(Adapted(), CPU, torch.float32)
    assert refused.value.code == "products"
    assert f"for its {kind}," in refused.value.message
    assert "6 of 18 products" in refused.value.message
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is 60" in refused.value.checks[0]


def test_a_layer_is_multiplied_as_torch_does_it(monkeypatch):
    """The factors of `compare` lie in memory as those of a layer's own forward and backward pass."""
    seen = set()
    right_one = torch.ops.aten.mm.default

    class Look(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            if f in (right_one, torch.ops.aten.addmm.default):
                left, right = args[-2:]
                seen.add((*left.shape, right.shape[1], left.stride()[0] == 1, right.stride()[0] == 1))
            return f(*args, **(kwargs or {}))

    layer = nn.Linear(96, 320, bias=False)
    with Look():
        layer(torch.randn(512, 96, requires_grad=True)).sum().backward()
        torch.autograd.grad(layer(torch.randn(16, 96, requires_grad=True)).pow(2).sum(), layer.weight)
    of_torch, seen = seen, set()
    with Look():
        products.compare(layer, CPU, torch.float32)
    assert of_torch <= seen | {(t[1], t[0], t[2], *t[3:]) for t in seen}
