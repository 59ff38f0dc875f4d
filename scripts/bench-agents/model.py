"""Make the folder of a model with a chat template for tools: the tokenizer of SmolLM2 with the tokens and the template
of Qwen3-Instruct-2507, which TRL has among its templates, and a tiny model with random weights, which TRL loads.

usage: model.py TOKENIZER OUT
"""

import sys
from pathlib import Path

import trl
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

TOKENS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]

source, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(source)
tokenizer.add_tokens(TOKENS)  # not special: they are a part of the text, as with Qwen3
tokenizer.unk_token = None  # as with Qwen3; verifiers takes a special token that is the unknown one for missing
template = Path(trl.__file__).parent / "chat_templates" / "qwen3_instruct_2507.jinja"
tokenizer.chat_template = template.read_text()
tokenizer.save_pretrained(out)
LlamaForCausalLM(
    LlamaConfig(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                num_attention_heads=2, max_position_embeddings=1 << 16)
).save_pretrained(out)  # fmt: skip
