"""The head's kernels, interpreted, against the plain functions whose work they do in one pass."""

import importlib.util
import os
import subprocess
import sys

import pytest

#: Where triton lies, when it is not installed here: scripts/test-python.sh says it.
FOLDER = os.environ.get("RECIPE_TRITON", "")

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


@pytest.mark.skipif(not FOLDER and not importlib.util.find_spec("triton"), reason="triton is not there (RECIPE_TRITON)")
def test_kernels_calculate_what_the_plain_functions_do():
    path = os.pathsep.join(filter(None, [*sys.path, FOLDER]))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.split()[-1]) < 5e-6
