"""The trainer's side of weights in memory (recipe_sdk.ipc) against the server's, on a toy of a vLLM model.

The toy fuses q, k, v and gate, up into one parameter each, as vLLM does, and ties its output head to the embedding.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import recipe_pull
import recipe_vllm
import torch
from recipe_sdk import ipc
from recipe_sdk.errors import WorkerError
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}


def trainer(tied: bool = True, **change) -> SimpleNamespace:
    torch.manual_seed(1)
    config = LlamaConfig(**{**SIZES, **HEADS, "tie_word_embeddings": tied, **change})
    return SimpleNamespace(causal=LlamaForCausalLM(config))


class Fused(nn.Module):
    def __init__(self, sizes: list[int], width: int):
        super().__init__()
        self.output_sizes = sizes
        self.weight = nn.Parameter(torch.zeros(sum(sizes), width), requires_grad=False)


class Plain(nn.Module):
    def __init__(self, *shape: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(*shape), requires_grad=False)


class Served(nn.Module):
    """The same model in vLLM's form."""

    packed_modules_mapping = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}

    def __init__(self, tied: bool = True, vocabulary: int = 32):
        super().__init__()
        self.config = SimpleNamespace(tie_word_embeddings=tied)
        self.model = nn.Module()
        self.model.embed_tokens = Plain(vocabulary, 16)
        self.model.norm = Plain(16)
        self.model.layers = nn.ModuleList()
        for _ in range(2):
            layer = nn.Module()
            layer.self_attn, layer.mlp = nn.Module(), nn.Module()
            layer.self_attn.qkv_proj, layer.self_attn.o_proj = Fused([16, 8, 8], 16), Plain(16, 16)
            layer.mlp.gate_up_proj, layer.mlp.down_proj = Fused([24, 24], 16), Plain(16, 24)
            layer.input_layernorm, layer.post_attention_layernorm = Plain(16), Plain(16)
            self.model.layers.append(layer)
        self.lm_head = self.model.embed_tokens if tied else Plain(vocabulary, 16)


def publish(policy, version: int = 1, shared: ipc.Shared | None = None, **options) -> tuple[ipc.Shared, dict]:
    shared = shared or ipc.Shared()
    answer = shared.refresh(policy.causal.named_parameters, torch.device("cpu"), version, options.get("dtype"), True)
    return shared, json.loads(json.dumps(answer["handles"]))  # as it is sent


def never(_):
    raise AssertionError("vLLM's loader was called")


@pytest.mark.parametrize("tied", [True, False])
def test_every_tensor_follows_the_trainer(tied):
    policy, model = trainer(tied), Served(tied)
    shared, handles = publish(policy)
    puller = recipe_pull.Puller(model, handles)
    told = puller.pull(1, never)
    assert told["path"] == "direct" and told["tensors"] == len(handles["tensors"]) and puller.differences() == 0
    layer = policy.causal.model.layers[1]
    fused = model.model.layers[1].self_attn.qkv_proj.weight
    parts = [layer.self_attn.q_proj.weight, layer.self_attn.k_proj.weight, layer.self_attn.v_proj.weight]
    assert torch.equal(fused, torch.cat(parts))
    parts = [layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight]
    assert torch.equal(model.model.layers[1].mlp.gate_up_proj.weight, torch.cat(parts))
    assert torch.equal(model.lm_head.weight, policy.causal.lm_head.weight)

    before = fused.clone()
    with torch.no_grad():
        for p in policy.causal.parameters():
            p.add_(0.5)
    assert torch.equal(fused, before), "the server's weights changed without being told to"
    with pytest.raises(recipe_pull.Refused, match="holds version 1, wanted is 2"):
        puller.pull(2, never)
    assert publish(policy, 2, shared)[1] == handles, "the tensors moved"
    puller.pull(2, never)
    assert torch.equal(model.model.norm.weight, policy.causal.model.norm.weight)
    assert puller.differences() == 0


def test_the_coarser_side_gets_rounded_values():
    policy, model = trainer(), Served().to(torch.bfloat16)
    puller = recipe_pull.Puller(model, publish(policy)[1])
    assert puller.pull(1, never)["path"] == "direct"
    norm = policy.causal.model.layers[0].mlp.down_proj.weight
    assert torch.equal(model.model.layers[0].mlp.down_proj.weight, norm.to(torch.bfloat16))
    shared, handles = publish(policy, dtype="bfloat16")
    assert {t["dtype"] for t in handles["tensors"]} == {"bfloat16"}
    assert shared.setup == ("bfloat16", True)


@pytest.mark.parametrize(
    "change, named",
    [
        ({"intermediate_size": 20}, "gate_proj"),
        ({"num_hidden_layers": 3}, "model.layers.2"),
        ({"num_hidden_layers": 1}, "no tensor for the server's model.layers.1"),
        ({"hidden_size": 8}, "embed_tokens"),
    ],
)
def test_another_model_is_refused_before_any_change(change, named):
    model = Served()
    with pytest.raises(recipe_pull.Refused, match=named):
        recipe_pull.Puller(model, publish(trainer(**change))[1])
    assert all((p == 0).all() for p in model.parameters())


def test_other_layouts_go_through_the_loader():
    policy = trainer()
    for model, direct, why in (
        (Served(vocabulary=64), True, "another memory layout"),  # padded
        (Served(), False, "packed copies"),
    ):
        puller = recipe_pull.Puller(model, publish(policy)[1], direct)
        got = {}
        told = puller.pull(1, lambda items, got=got: got.update((n, t.clone()) for n, t in items))
        assert told["path"] == "loader" and why in told["why"]
        want = dict(policy.causal.named_parameters())
        assert set(got) == set(want) and all(torch.equal(got[n], want[n]) for n in want)


class Rows:
    """Stands for vLLM's method of float8 with a scale for each row: what a layer has loaded is turned into that form,
    once."""

    __module__ = "vllm.model_executor.layers.quantization.online.fp8"
    uses_meta_device = True

    def process_weights_after_loading(self, layer):
        if getattr(layer, "_already_called_process_weights_after_loading", False):
            return
        scale = layer.weight.abs().amax(1, keepdim=True) / 448
        form = (layer.weight / scale).to(torch.float8_e4m3fn).t()
        layer.weight = nn.Parameter(form, requires_grad=False)
        layer.weight_scale = nn.Parameter(scale, requires_grad=False)
        layer._already_called_process_weights_after_loading = True


def in_float8(**change) -> Served:
    """The model as vLLM serves it with quantization = "fp8_per_channel"."""
    model = Served(**change)
    for module in model.model.layers.modules():
        if not hasattr(module, "weight") or module.weight.ndim != 2:
            continue
        module.quant_method, module.orig_dtype = Rows(), torch.bfloat16
        module.logical_widths = getattr(module, "output_sizes", [module.weight.shape[0]])
        module.input_size_per_partition = module.weight.shape[1]
        module.weight.data.fill_(1)
        module.quant_method.process_weights_after_loading(module)
    return model


def test_a_float8_server_loads_updates_like_the_first():
    policy, model = trainer(), in_float8()
    parameters = {n: p.data_ptr() for n, p in model.named_parameters()}
    puller = recipe_pull.Puller(model, publish(policy)[1])
    told = puller.pull(1, never)
    assert told["path"] == "direct" and puller.differences() is None
    for served, layer in zip(model.model.layers, policy.causal.model.layers, strict=True):
        for module, parts in (
            (served.self_attn.qkv_proj, [layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]),
            (served.self_attn.o_proj, [layer.self_attn.o_proj]),
            (served.mlp.gate_up_proj, [layer.mlp.gate_proj, layer.mlp.up_proj]),
            (served.mlp.down_proj, [layer.mlp.down_proj]),
        ):
            want = Plain(1, 1)
            want.weight = nn.Parameter(torch.cat([p.weight for p in parts]).bfloat16(), requires_grad=False)
            Rows().process_weights_after_loading(want)
            assert torch.equal(module.weight.view(torch.uint8), want.weight.view(torch.uint8))
            assert torch.equal(module.weight_scale, want.weight_scale.float())
    assert torch.equal(model.model.norm.weight, policy.causal.model.norm.weight), "left in 16 bits"
    assert {n: p.data_ptr() for n, p in model.named_parameters()} == parameters, "CUDA graphs read the old places"


def test_a_model_not_in_float8_changes_nothing():
    model = in_float8()
    before = {n: p.clone() for n, p in model.named_parameters()}
    with pytest.raises(recipe_pull.Refused, match=r"gate_proj.weight has shape \[20, 16\] .* and \[24, 16\]"):
        recipe_pull.Puller(model, publish(trainer(intermediate_size=20))[1])
    for module in model.model.layers.modules():
        if hasattr(module, "quant_method"):
            del module.quant_method  # its checkpoint was in float8
    with pytest.raises(recipe_pull.Refused, match="q_proj.weight was in float8 already"):
        recipe_pull.Puller(model, publish(trainer())[1])
    assert all(torch.equal(p.float(), before[n].float()) for n, p in model.named_parameters())


def test_shapes_on_several_gpus_are_not_compared():
    model = Served()
    for layer in model.model.layers:
        for module in (layer.self_attn.qkv_proj, layer.mlp.gate_up_proj):
            module.tp_size = 2
            module.weight = nn.Parameter(module.weight[: len(module.weight) // 2].clone(), requires_grad=False)
    assert recipe_pull.Puller(model, publish(trainer())[1]).targets is None


class Worker(recipe_vllm.RecipeWorker):
    """The parts of vLLM's worker that the extension uses."""

    def __init__(self, model):
        config = SimpleNamespace(dtype=torch.float32, use_mla=False)
        self.model_runner = SimpleNamespace(get_model=lambda: model, model_config=config)
        self.loaded = []

    def reload_weights(self, weights_iterator):
        self.loaded += [name for name, _ in weights_iterator]


def test_a_worker_says_how_exactly_it_computes():
    assert Worker(Served()).recipe_facts()["arithmetic"] == "float32"
    assert Worker(in_float8()).recipe_facts()["arithmetic"] == "float8"


def test_a_worker_opens_tensors_that_are_new_to_it():
    policy, worker = trainer(), Worker(Served())
    _, handles = publish(policy, 7)
    assert worker.recipe_pull(handles["key"], "7") == {"unknown": True}
    assert worker.recipe_attach(json.dumps(handles))["bytes"] > 0
    assert worker.recipe_pull(handles["key"], "7")["path"] == "direct"
    assert "wanted is 8" in worker.recipe_pull(handles["key"], "8")["refused"]
    _, other = publish(policy, 8)  # the trainer's next attempt
    assert worker.recipe_pull(other["key"], "8") == {"unknown": True}
    assert "form 99" in worker.recipe_attach(json.dumps({**handles, "form": 99}))["refused"]
    assert worker.recipe_facts()["reach"] == [ipc.place(torch.device("cpu"))]


def test_an_output_head_with_its_own_copy_is_renewed():
    model = Served()
    made = []
    model.lm_head.cpu_linear = True
    model.lm_head.quant_method = SimpleNamespace(process_weights_after_loading=made.append)
    worker = Worker(model)
    _, handles = publish(trainer())
    worker.recipe_attach(json.dumps(handles))
    assert worker.recipe_pull(handles["key"], "1")["path"] == "loader" and made == [model.lm_head]
    assert len(worker.loaded) == len(handles["tensors"])


CHILD = """
import json, sys, torch
from test_pull import publish, trainer
print(json.dumps(publish(trainer(), 3)[1]), flush=True)
sys.stdin.read()
"""


def test_a_killed_process_leaves_no_shared_weights():
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "PYTHONPATH": path})  # fmt: skip
    try:
        handles = json.loads(child.stdout.readline())
        model = Served()
        puller = recipe_pull.Puller(model, handles)
        puller.pull(3, never)
        assert torch.equal(model.model.norm.weight, trainer().causal.model.norm.weight)
        with open(f"/proc/{child.pid}/maps") as maps:  # what others have in /dev/shm at the same time does not count
            named = [line for line in maps if "/dev/shm/" in line and not line.endswith("(deleted)\n")]
        assert not named, "the weights have a name in a file system"
    finally:
        child.kill()
        child.communicate()
    model.model.norm.weight.data.fill_(9)
    with pytest.raises(recipe_pull.Refused, match="is gone"):
        puller.pull(3, never)
    assert (model.model.norm.weight == 9).all(), "a dead trainer's memory was copied"
    with pytest.raises(recipe_pull.Refused, match="is gone"):
        recipe_pull.Puller(model, handles)


def test_memory_that_cannot_be_had_is_said(monkeypatch):
    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    shared = ipc.Shared()
    with monkeypatch.context() as m:
        m.setattr(os, "memfd_create", refuse)
        for _ in range(2):
            with pytest.raises(WorkerError, match="shared memory could not be had"):
                publish(trainer(), 1, shared)
    model = Served()  # later there is memory
    recipe_pull.Puller(model, publish(trainer(), 2, shared)[1]).pull(2, never)
    assert torch.equal(model.model.norm.weight, trainer().causal.model.norm.weight)
