"""Log-probabilities where flash-attn is missing."""

import pytest
import torch
from verl.utils import torch_functional

from recipe_verl import logprob


@pytest.mark.parametrize("shape", [(7,), (2, 3), (0,)])
@pytest.mark.parametrize("dtype, near", [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_values_and_gradients_are_those_of_log_softmax(shape, dtype, near, monkeypatch):
    monkeypatch.setattr(logprob, "ROWS", 3)
    monkeypatch.setattr(torch_functional, "logprobs_from_logits_v2", None)
    monkeypatch.setattr(torch_functional, "FLAH_ATTN_CROSS_ENTROPY_LOSS_AVAILABLE", False)
    logprob.install()
    torch.manual_seed(0)
    logits = (5 * torch.randn(*shape, 11)).to(dtype).requires_grad_()
    labels, weights = torch.randint(11, shape), torch.randn(shape)
    exact = logits.detach().double().requires_grad_()
    want = exact.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    got = torch_functional.logprobs_from_logits(logits, labels)
    torch.testing.assert_close(got.double(), want, rtol=0, atol=min(near, 1e-5))  # float32 of logits in 16 bits, too
    (got * weights).sum().backward()
    (want * weights).sum().backward()
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=near, atol=near)
