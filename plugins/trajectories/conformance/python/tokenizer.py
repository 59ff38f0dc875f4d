"""tokenizer.py DIR: write a tokenizer of a hundred words, so that an environment needs nothing from a hub."""

import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

words = {f"w{i}": i for i in range(100)}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="w1", eos_token="w2", unk_token="w0"
).save_pretrained(sys.argv[1])
