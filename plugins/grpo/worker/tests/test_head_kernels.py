"""The head's kernels, interpreted, against the plain functions whose work they do in one pass."""

from . import interpreted

PROGRAM = """
import torch
from worker import head_kernels, logprob

head_kernels.WIDE, head_kernels.NARROW = 64, 32
torch.manual_seed(0)
worst = 0.0
for vocabulary in (200, 61, 64):  # blocks that are full, and that are not
    product, label = torch.randn(7, vocabulary) * 3, torch.randint(0, vocabulary, (7,))
    warm, g, g_entropy = torch.rand(7) + 0.5, torch.randn(7), torch.randn(7)
    lp, lse, entropy, _ = logprob._forward(product.clone(), None, label, warm, 0.7, None, True, False)
    for a, b in zip((lp, lse, entropy), head_kernels.forward(product, label, 0.7 / warm)):
        worst = max(worst, float((a - b).abs().max()))
    for g, h, up in ((g, None, None), (g, entropy, g_entropy), (torch.tensor(0.3).expand(7), None, None)):
        want = logprob._backward(product.clone(), None, label, warm, lse, g, h, up, 0.7, None)
        mine = product.clone()
        got = head_kernels.backward(mine, label, 0.7 / warm, lse, g, h, up)
        assert got.data_ptr() == mine.data_ptr()
        worst = max(worst, float((want - got).abs().max()))
print(worst)
"""


@interpreted.needs_triton
def test_kernels_calculate_what_the_plain_functions_do():
    assert float(interpreted.run(PROGRAM)) < 5e-6
