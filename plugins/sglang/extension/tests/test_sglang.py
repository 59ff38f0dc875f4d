"""Requests to SGLang's schedulers: the answer is always a file, and no exception leaves the call."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import recipe_sglang
import torch
from recipe_sdk import ipc
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

SHAPE = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}  # fmt: skip

# A process of its own imports what stands for the kernels: it changes PyTorch.
WITHOUT_A_GPU = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "cpu")}


class Fused(nn.Module):
    def __init__(self, *sizes: int):
        super().__init__()
        self.output_sizes = list(sizes)
        self.weight = nn.Parameter(torch.zeros(sum(sizes), 16), requires_grad=False)


class Served(LlamaForCausalLM):
    """The same model as SGLang has it: q, k, v and gate, up are one layer each, without a table of them."""

    def __init__(self):
        super().__init__(LlamaConfig(**SHAPE))
        for layer in self.model.layers:
            attention, mlp = layer.self_attn, layer.mlp
            del attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj
            attention.qkv_proj, mlp.gate_up_proj = Fused(16, 8, 8), Fused(24, 24)
        self.loaded: list[str] = []

    def load_weights(self, items):
        self.loaded += [name for name, _ in items]


def ask(model, reply: Path, **request):
    request = {"reply": str(reply), **request}
    recipe_sglang.call(model, [(json.dumps(request), torch.tensor(0))])
    return json.loads(Path(f"{reply}.0").read_text())


@pytest.fixture
def trainer():
    torch.manual_seed(1)
    policy, shared = LlamaForCausalLM(LlamaConfig(**SHAPE)), ipc.Shared()
    answer = shared.refresh(policy.named_parameters, torch.device("cpu"), 3, None, True)
    handles = answer["handles"]
    yield SimpleNamespace(policy=policy, handles=json.dumps(handles), key=handles["key"], shared=shared)


def test_a_version_lands_in_fused_parameters(tmp_path, trainer):
    model, reply = Served(), tmp_path / "answer"
    assert ask(model, reply, do="pull", key=trainer.key, version=3) == {"unknown": True}
    assert ask(model, reply, do="attach", handles=trainer.handles).get("why") == ""
    told = ask(model, reply, do="pull", key=trainer.key, version=3)
    assert told["path"] == "direct" and told["bytes"] > 0
    layer = trainer.policy.model.layers[1].self_attn
    parts = [layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight]
    assert torch.equal(model.model.layers[1].self_attn.qkv_proj.weight, torch.cat(parts))
    assert "wanted is 4" in ask(model, reply, do="pull", key=trainer.key, version=4)["refused"]


def test_packed_layers_use_the_loader(tmp_path, trainer):
    model, reply = Served(), tmp_path / "answer"
    model.model.layers[0].use_intel_amx_backend = True
    assert "packed copies" in ask(model, reply, do="attach", handles=trainer.handles)["why"]
    assert ask(model, reply, do="pull", key=trainer.key, version=3)["path"] == "loader"
    assert "model.layers.0.self_attn.q_proj.weight" in model.loaded
    del model.model.layers[1]
    assert "model.layers.1" in ask(model, reply, do="attach", handles=trainer.handles)["refused"]
    assert ask(model, reply, do="pull", key=trainer.key, version=3) == {"unknown": True}


def test_no_exception_leaves_the_call(tmp_path, capfd):
    model, reply = Served(), tmp_path / "answer"
    assert "KeyError: 'nonsense'" in ask(model, reply, do="nonsense")["error"]
    assert "JSONDecodeError" in ask(model, reply, do="attach", handles="{")["error"]
    recipe_sglang.call(model, [])
    recipe_sglang.call(model, [("no JSON", None)])
    recipe_sglang.call(None, [(json.dumps({"do": "facts", "reply": "/no/such/folder/x"}), None)])
    assert "Traceback" in capfd.readouterr().err


def test_facts_and_an_adapter_that_changes_nothing(tmp_path):
    model, reply = Served(), tmp_path / "answer"
    facts = ask(model, reply, do="facts")
    assert facts["device"] == "cpu" and facts["arithmetic"] == "float32" and facts["reach"] and facts["machine"]
    assert ask(model, reply, do="zero_adapter", path=str(tmp_path / "zero")) == {}
    from safetensors.torch import load_file

    tensors = load_file(tmp_path / "zero" / "adapter_model.safetensors")
    assert all((t == 0).all() and ".o_proj." in name for name, t in tensors.items()) and len(tensors) == 2
    assert json.loads((tmp_path / "zero" / "adapter_config.json").read_text())["r"] == 1


def test_modules_that_an_adapter_may_change(tmp_path):
    model, reply = Served(), tmp_path / "answer"
    told = ask(model, reply, do="unknown_modules", modules=["model.layers.0.self_attn.o_proj"])
    assert "no layer of its model takes an adapter" in told["error"]
    for layer in model.model.layers:
        for m in (layer.self_attn.qkv_proj, layer.self_attn.o_proj, layer.mlp.gate_up_proj, layer.mlp.down_proj):
            m.set_lora_info = None
    at = "model.layers.1."
    known = ["self_attn.q_proj", "self_attn.qkv_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.gate_proj", "mlp.w2"]
    unknown = [at + "self_attn.q_projection", "model.layers.2.self_attn.o_proj", "lm_head", "visual.o_proj"]
    told = ask(model, reply, do="unknown_modules", modules=[at + m for m in known] + unknown)
    assert told == {"unknown": unknown, "served": ["down_proj", "gate_up_proj", "o_proj", "qkv_proj"]}
    model.model.embed_tokens.set_lora_info = model.lm_head.set_lora_info = None
    model.model.layers[0].mlp.experts = Fused(24)
    model.model.layers[0].mlp.experts.set_lora_info = None
    modules = ["lm_head", "model.embed_tokens", "model.layers.0.mlp.experts.3.w1"]
    assert ask(model, reply, do="unknown_modules", modules=modules)["unknown"] == []


def test_the_unpickler_reads_the_request():
    text = (Path(__file__).parents[2] / "testdata" / "request.b64").read_text()
    ((name, tensor),) = pickle.loads(base64.b64decode(text))
    assert json.loads(name) == {"do": "facts", "reply": "/tmp/ü"} and tensor.numel() == 0


def test_a_kernels_name_imports_but_cannot_be_called():
    code = "from sgl_kernel import top_k; top_k()"
    ran = subprocess.run([sys.executable, "-c", code], env=WITHOUT_A_GPU, capture_output=True, text=True)
    assert ran.returncode == 1 and "sgl_kernel.top_k is a kernel for GPUs" in ran.stderr, ran.stderr


def test_page_locked_memory_is_ignored_without_a_gpu():
    code = (
        "import sgl_kernel, torch\n"
        "t = torch.tensor([1, 2], dtype=torch.int32, pin_memory=True, device='cpu').pin_memory()\n"
        "assert t.tolist() == [1, 2] and torch.zeros((3,), pin_memory=True).sum() == 0 and not t.is_pinned()\n"
        "assert torch.arange(2, pin_memory=False).tolist() == [0, 1] and len(torch.empty(2, pin_memory=True)) == 2\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=WITHOUT_A_GPU)
