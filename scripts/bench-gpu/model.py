"""Write random weights in the shape of Qwen2.5-1.5B or 7B, with a tokenizer of another model.

usage: model.py SHAPE TOKENIZER OUT

TOKENIZER is a folder, or a name on the model hub, with a tokenizer; its vocabulary becomes the model's. Random weights
need no download of a large model, and their speed is that of trained ones. SHAPE is 1.5B, 7B, or tiny:
two narrow layers, for a CPU.
"""

import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

SHAPES = {
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
             "num_key_value_heads": 2, "tie_word_embeddings": True},
    "7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "tie_word_embeddings": False},
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2,
             "num_key_value_heads": 2, "tie_word_embeddings": True},
}  # fmt: skip


def write(tokenizer_path: str, out: str, shape: dict[str, int | bool]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
    config = Qwen2Config(
        vocab_size=(len(tokenizer) + 127) // 128 * 128,
        **shape,
        max_position_embeddings=32768,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        # The tokenizer's special tokens: each program ends a completion at the same one.
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    part = f"{out}.part"
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    os.rename(part, out)


if __name__ == "__main__":
    write(*sys.argv[2:4], SHAPES[sys.argv[1]])
