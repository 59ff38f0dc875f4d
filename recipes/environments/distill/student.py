"""Makes a student: the teacher without some of its layers. python student.py TEACHER FOLDER [LAYER …]"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(teacher: str, folder: str, *layers: str) -> None:
    left_out = {int(n) for n in layers} or {14, 15}
    model = AutoModelForCausalLM.from_pretrained(teacher, dtype=torch.float32)
    kept = [layer for n, layer in enumerate(model.model.layers) if n not in left_out]
    for n, layer in enumerate(kept):
        layer.self_attn.layer_idx = n
    model.model.layers = torch.nn.ModuleList(kept)
    model.config.num_hidden_layers = len(kept)
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[: len(kept)]
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(teacher).save_pretrained(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
