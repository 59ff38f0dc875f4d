"""What of a model that bitsandbytes holds in 4 or 8 bits goes to inference."""

import pytest
import torch
from recipe_sdk import causal

WIDTH = 64  # what bitsandbytes scales together


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A randomly initialized Llama, as a folder and as its weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("model")
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    ))  # fmt: skip
    model.save_pretrained(path)
    return path, model.state_dict()


@pytest.mark.parametrize(("bits", "stored"), [(4, "uint8"), (4, "bfloat16"), (8, "int8")])
def test_layers_are_published_with_adapters_or_none(bits, stored, whole):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    path, weights = whole
    storage = {"bnb_4bit_quant_storage": stored} if bits == 4 else {}
    held = BitsAndBytesConfig(**{f"load_in_{bits}bit": True}, bnb_4bit_quant_type="nf4", **storage)
    model = AutoModelForCausalLM.from_pretrained(path, quantization_config=held, dtype=torch.float32)
    assert model.get_submodule("model.layers.0.mlp.up_proj").weight.dtype == getattr(torch, stored)
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"]))
    found = dict(causal.named(adapted))
    assert found.keys() == weights.keys()
    for name, value in found.items():
        assert value.is_floating_point() and value.shape == weights[name].shape, name
        wrong = (value.float() - weights[name]).norm() / weights[name].norm()
        assert wrong < {4: 0.15, 8: 0.02}[bits], (name, float(wrong))
