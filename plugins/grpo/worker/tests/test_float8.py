"""Products in float8: what is rounded and what is not, and that nothing but arithmetic changes."""

import functools

import pytest
import torch
from recipe_sdk import publish
from recipe_sdk.errors import MismatchError, WorkerError
from recipe_sdk.fields import ConfigError
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from worker import compiled, float8, model
from worker import weights as published
from worker.batch import whole_row
from worker.factors import merged_linear

from . import interpreted, test_model
from .conftest import attached

BF16 = {"dtype": "bfloat16"}
FLOAT8 = {"model": {**BF16, "float8": "all"}}
LORA = {"lora": {"rank": 4, "alpha": 8}}
WAYS = {"full": {}, "merged": LORA, "apart": {"lora": {**LORA["lora"], "merged": False}}}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def far(got, want):
    """How far apart, as a part of what is wanted."""
    return float((got.double() - want.double()).norm() / want.double().norm())


def layer(which=None, bias=True, dtype=torch.bfloat16):
    torch.manual_seed(1)
    found = nn.Linear(64, 48, bias=bias).to(dtype)
    if which:
        found.__class__, found.forward_too = float8.Linear, which == "all"
    return found


# ---- rounding ----


@pytest.mark.parametrize("size", [1e-25, 1e-6, 1.0, 1e4, 1e30])
def test_each_row_has_four_bits_whatever_its_size(size):
    x = torch.randn(5, 64) * size
    x[3] *= 1e5  # an outlier, from which the others do not suffer
    found, scales = float8.round_rows(x, None)
    again = found.float() * scales
    # half a step of e4m3, and where numbers are 2^-6 / 448 of the row's largest or less, half the smallest step
    allowed = torch.maximum(x.abs() / 16, x.abs().amax(1, keepdim=True) / 448 * 2**-10) * 1.001
    assert bool(((again - x).abs() <= allowed).all())
    assert bool((found.float().abs().amax(1) == 448).all())


def test_strided_rows_round_like_contiguous_ones():
    x = torch.randn(64, 32, dtype=torch.bfloat16).t()
    (found, scales), (want, others) = float8.round_rows(x, None), float8.round_rows(x.clone(), None)
    assert not x.is_contiguous() and found.is_contiguous()
    assert torch.equal(found.float(), want.float()) and torch.equal(scales, others)


def test_rows_of_zeros_stay_zeros():
    found, scales = float8.round_rows(torch.zeros(2, 16), None)
    assert bool((found.float() == 0).all()) and bool((scales > 0).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_not_hidden(bad):
    x = torch.randn(3, 64, dtype=torch.bfloat16)
    x[1, 7] = bad
    y, _ = float8.forward(x, torch.randn(48, 64, dtype=torch.bfloat16))
    assert bool(y[[0, 2]].isfinite().all()) and not bool(y[1].isfinite().any())


def test_transposed_weights_equal_the_forward_pass():
    w = torch.randn(48, 64, dtype=torch.bfloat16) * torch.logspace(-3, 3, 48)[:, None].bfloat16()
    found, scales = float8.round_rows(w, None)
    assert torch.equal(float8.round_transposed(w, scales).float(), found.float().t())


# ---- a layer ----


@pytest.mark.parametrize("which", ["backward", "all"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["narrow", "master"])
def test_a_layer_rounds_what_goes_on_and_nothing_else(which, dtype):
    x = torch.randn(2, 7, 64, dtype=torch.bfloat16, requires_grad=True)
    ours, plain = layer(which, dtype=dtype), layer(dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
        y, want = ours(x), plain(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, want) if which == "backward" else 0.005 < far(y, want) < 0.06
    g = torch.randn_like(y)
    gx, gw, gb = torch.autograd.grad(y, [x, ours.weight, ours.bias], g)
    wx, _, _ = torch.autograd.grad(want, [x, plain.weight, plain.bias], g)
    assert 0.005 < far(gx, wx) < 0.06
    exact = g.double().flatten(0, 1).t() @ x.double().flatten(0, 1)
    assert gw.dtype == dtype and far(gw, exact) < 0.003  # of the product of 16 bits
    assert far(gb, g.double().sum((0, 1))) < 0.003


def test_both_passes_have_the_same_weights():
    """A gradient of one channel alone, whose own rounding changes nothing, gives that channel's rounded weights."""
    w = layer("all").weight.detach()
    w8, scales = float8.round_rows(w, None)
    eye = torch.eye(48, dtype=torch.bfloat16)
    got = float8.backward(eye, w, float8.forward(torch.eye(64, dtype=torch.bfloat16), w)[1])
    assert far(got, w8.double() * scales.double()) < 0.003 < far(got, w)
    assert torch.equal(got, float8.backward(eye, w, None))


def test_a_frozen_weight_keeps_no_input():
    frozen = layer("all").requires_grad_(False)
    x = torch.randn(4, 64, dtype=torch.bfloat16, requires_grad=True)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.shape) or t, lambda t: t):
        frozen(x)
    assert x.shape not in sizes


@pytest.mark.parametrize("which", ["backward", "all"])
def test_gradients_of_adapters_are_those_without(which):
    base = layer(which).requires_grad_(False)
    x = torch.randn(2, 7, 64, dtype=torch.bfloat16, requires_grad=True)
    a, b = (torch.randn(n, requires_grad=True) for n in ((4, 64), (48, 4)))
    near = a.detach().bfloat16(), b.detach().bfloat16()
    y = float8.merged_linear(x, base, a, b, *near, 2.0)
    want = merged_linear(x, base.weight, base.bias, a, b, *near, 2.0)
    assert torch.equal(y, want) if which == "backward" else 0.005 < far(y, want) < 0.06
    g = torch.randn_like(y)
    (gx, *factors), (wx, *others) = (torch.autograd.grad(out, [x, a, b], g) for out in (y, want))
    assert 0.005 < far(gx, wx) < 0.06
    for got, other in zip(factors, others, strict=True):
        assert got.dtype == torch.float32 and torch.equal(got, other)


@pytest.mark.parametrize("biased", [True, False])
def test_compiled_layers_round_an_input_once(biased):
    """Three layers that read one input, as attention's do."""
    three = nn.ModuleList(layer("all", biased) for _ in range(3))
    counted = CompileCounterWithBackend("aot_eager")
    seen = []

    def backend(graph, inputs):
        from functorch.compile import make_boxed_func
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        def forward(made, _):
            seen.append([n.target for n in made.graph.nodes])
            return make_boxed_func(made.forward)

        return aot_autograd(fw_compiler=forward, partition_fn=min_cut_rematerialization_partition)(graph, inputs)

    def run(x):
        return sum(m(x) for m in three)

    x = torch.randn(6, 64, dtype=torch.bfloat16, requires_grad=True)
    torch._dynamo.reset()
    whole = torch.compile(run, backend=counted, fullgraph=True, dynamic=True)
    assert torch.equal(whole(x), run(x)) and counted.frame_count == 1
    torch._dynamo.reset()
    assert torch.equal(torch.compile(run, backend=backend, dynamic=True)(x), run(x))
    assert seen[0].count(torch.ops.recipe.round_rows.default) == 3 + 1
    torch._dynamo.reset()


# ---- a model ----


def policy(tmp_path, tiny, change, **more):
    return test_model.stepper(tmp_path, tiny, **{**FLOAT8, **change, **more}).policy


@pytest.mark.parametrize("way", WAYS)
def test_all_linear_layers_but_head_and_adapters_do(tmp_path, tiny, way):
    p = policy(tmp_path, tiny, WAYS[way])
    found = {name for name, m in p.causal.named_modules() if isinstance(m, float8.Linear)}
    assert len(found) == 14 and not any("lora" in name or "lm_head" in name for name in found)


def test_routers_and_odd_sizes_are_left_as_they_are(tmp_path, tiny):
    p = policy(tmp_path, tiny, {})
    first = p.backbone.layers[0]
    first.mlp.gate, first.mlp.odd = nn.Linear(32, 16), nn.Linear(32, 24)
    assert float8.install(p.backbone, "all") == (14, 15)
    assert type(first.mlp.gate) is nn.Linear and type(first.mlp.odd) is nn.Linear


@pytest.mark.parametrize(
    "way, which, compile, recomputed",
    [("full", "all", False, False), ("full", "backward", True, False), ("merged", "backward", False, True),
     ("merged", "all", True, True), ("apart", "all", False, False), ("apart", "backward", False, False)],
)  # fmt: skip
def test_a_step_is_about_the_one_without(tmp_path, tiny, monkeypatch, way, which, compile, recomputed):
    """Gradients of the whole model point in the same direction; log-probabilities are the same unless the forward pass
    rounds, too; what is published is as before."""
    monkeypatch.setattr(compiled, "layers", functools.partial(compiled.layers, backend="aot_eager"))
    torch._dynamo.reset()
    found = []
    for products in (None, which):
        run = {**BF16, "compile": compile, "gradient_checkpointing": recomputed, "float8": products}
        s = test_model.stepper(tmp_path, tiny, model=run, optimizer={"learning_rate": 0.0}, **WAYS[way])
        before = {k: v.clone() for k, v in published.merged(s.policy)}
        grads = {}
        move = s.move

        def kept(step, s=s, grads=grads, move=move):
            grads.update({n: p.grad.clone() for n, p in s.policy.named_parameters() if p.grad is not None})
            return move(step)

        s.move = kept
        test_model.after_steps(s, 1)
        assert all(torch.equal(before[k], v) for k, v in published.merged(s.policy))
        found.append((grads, set(before), s.tokens["logprobs"]))
    (want, names, exact), (got, same, logprobs) = found
    assert names == same and set(want) == set(got)
    assert torch.equal(logprobs, exact) == (which == "backward") and far(logprobs, exact) < 0.05
    flat = [torch.cat([g[n].float().flatten() for n in sorted(g)]) for g in (want, got)]
    assert torch.cosine_similarity(*flat, dim=0) > 0.97
    assert far(flat[1], flat[0]) > 0.001


@pytest.mark.parametrize("way", WAYS)
def test_the_proof_of_an_update_is_calculated_without(tmp_path, tiny, way):
    """Inference, which it is compared with, does not round."""
    ids = list(range(3, 30))
    answers = []
    for products in (None, "all"):
        s = test_model.stepper(tmp_path, tiny, model={**BF16, "float8": products}, **WAYS[way])
        proof = publish.logprobs(attached(s), {"token_ids": ids})["logprobs"]
        answers.append((proof, s.policy(whole_row(torch.tensor(ids))).lp.tolist()))
    (want, exact), (proof, trained) = answers
    assert proof == want and trained != exact


@pytest.mark.parametrize("which", ["backward", "all"])
def test_a_reference_calculates_as_the_policy_does(tmp_path, tiny, which):
    """So they do not differ before anything is trained."""
    s = test_model.stepper(
        tmp_path, tiny, model={**BF16, "float8": which}, kl={"coefficient": 0.1}, reference={"source": "copy"}
    )
    b = test_model.batches.build(test_model.groups())
    assert s.reference.copy is not None
    assert torch.equal(s.reference_scores(b), s.scores(s.policy, b)["lp"])


@pytest.mark.parametrize("which", ["backward", "all"])
def test_a_batch_of_another_policy_names_the_cause(tmp_path, tiny, which):
    s = test_model.stepper(tmp_path, tiny, model={**BF16, "float8": which}, correction={"mismatch_limit": 1e-9})
    with pytest.raises(MismatchError) as refused:
        test_model.after_steps(s, 1)
    assert ("model.float8 = backward" in str(refused.value)) == (which == "all")


# ---- refusals ----


@pytest.mark.parametrize(
    "given, advice", [({"dtype": "float32"}, "Add compute_dtype"), ({"compute_dtype": "float32"}, "Leave it")]
)
def test_other_arithmetic_is_refused(tmp_path, tiny, given, advice):
    unset = {"dtype": None, "compute_dtype": None}
    with pytest.raises(ConfigError, match=f"goes with arithmetic in bfloat16.*{advice}"):
        policy(tmp_path, tiny, {"model": {**unset, "float8": "all", **given}})
    with pytest.raises(WorkerError, match=r"goes with arithmetic in bfloat16, and here it is in torch.float32"):
        policy(tmp_path, tiny, {"model": {**unset, "float8": "all"}})  # a CPU's default


def test_a_device_that_cannot_is_refused(tmp_path, tiny, monkeypatch):
    def cannot(*_, **__):
        raise RuntimeError("torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0")

    monkeypatch.setattr(torch, "_scaled_mm", cannot)
    with pytest.raises(WorkerError, match=r"scale for each row. cpu does not: .*capability >= 9.0"):
        policy(tmp_path, tiny, {})


def test_a_model_of_which_no_layer_fits_is_refused(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr(float8, "ALIGNED", 128)
    monkeypatch.setattr(float8, "refused", lambda device: "")
    with pytest.raises(model.ModelError, match="none of the 14 linear layers"):
        policy(tmp_path, tiny, {})


# ---- kernels ----

PROGRAM = """
import torch
from worker import float8, float8_kernels

float8.DTYPE = torch.float16  # the interpreter rounds to float8 in a way of its own: tests/gpu.py looks at that
torch.manual_seed(0)
for n, k in ((7, 96), (64, 64), (33, 200)):  # blocks that are full, and that are not
    for dtype in (torch.float32, torch.bfloat16):
        x, factor = (torch.randn(n, k) * torch.logspace(-4, 4, n)[:, None]).to(dtype), torch.rand(k, 1) + 0.5
        for f in (None, factor):
            got, scales = float8_kernels.rows(x, f, float8.DTYPE, float8.LARGEST, float8.SMALLEST)
            want, others = float8._rows(x, f)
            assert torch.equal(scales, others), (n, k, dtype)
            assert torch.equal(got, want), (n, k, dtype)
        scales = float8._rows(x, None)[1]
        got, want = float8_kernels.transposed(x, scales, float8.DTYPE), float8._transposed(x, scales)
        assert torch.equal(got, want), (n, k, dtype)
print("equal")
"""


@interpreted.needs_triton
def test_kernels_round_as_the_plain_functions_do():
    assert interpreted.run(PROGRAM) == "equal"
