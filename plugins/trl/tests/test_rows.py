"""Rows of a data set as TRL itself renders and decodes them, beside what environment "reward" asks and gives for the
same rows (plugins/reward/rows_test.go writes that down)."""

import json

import pytest
from trl.data_utils import apply_chat_template, is_conversational

from .conftest import ROOT

DATA = ROOT / "plugins" / "reward" / "testdata"
# As in common templates: tools in the system message, calls of tools, an argument, and no system message of its own.
TEMPLATE = (
    "{%- if tools %}<tools>{{ tools | tojson }}</tools>{% endif -%}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{%- for c in m.tool_calls or [] %}<call>{{ c.function.name }} {{ c.function.arguments | tojson }}</call>"
    "{% endfor -%}"
    "<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n"
    "{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif -%}{% endif -%}"
)


@pytest.fixture(scope="module")
def tokenizer():
    """One whose tokens are bytes, which every text has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, chat_template=TEMPLATE, eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip


def lines(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def served(tokenizer, request):
    """The prompt that an OpenAI-compatible server makes of a request."""
    if "prompt" in request:
        return request["prompt"]
    messages = request["messages"]
    for message in messages:
        for call in message.get("tool_calls") or []:  # vLLM and SGLang read the arguments, too
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return tokenizer.apply_chat_template(
        messages, tools=request.get("tools"), tokenize=False,
        add_generation_prompt=request.get("add_generation_prompt", True),
        continue_final_message=request.get("continue_final_message", False), **request.get("chat_template_kwargs", {}),
    )  # fmt: skip


def of_trl(tokenizer, row, system):
    """The prompt that TRL makes of a row. It has no system_prompt: people write the message into the rows."""
    prompt = row["prompt"]
    if isinstance(prompt, str) and not system:
        return prompt
    prompt = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    for message in prompt:
        if isinstance(message["content"], list):  # text parts, which templates of texts do not read
            message["content"] = "".join(part["text"] for part in message["content"])
    if system and prompt[0]["role"] != "system":
        prompt = [{"role": "system", "content": system}, *prompt]
    example = {"prompt": prompt, "chat_template_kwargs": row.get("chat_template_kwargs", {})}
    return apply_chat_template(example, tokenizer, tools=row.get("tools"))["prompt"]


@pytest.mark.short
def test_rows_are_rendered_and_decoded_as_by_trl(tokenizer):
    asked = json.loads((DATA / "asked.json").read_text(encoding="utf-8"))
    assert len(asked) == 2 * (len(lines("rows.jsonl")) - 1)
    for one in asked:
        (row,) = (r for r in lines("rows.jsonl") if r["id"] == one["id"])
        system = one.get("system_prompt", "")
        assert served(tokenizer, one["request"]) == of_trl(tokenizer, row, system), (one["id"], system)
        # TRL gives reward functions the text of the tokens, in a conversation as the assistant's turn.
        (text,) = tokenizer.batch_decode([tokenizer.encode(one["sampled"])], skip_special_tokens=True)
        talks = is_conversational({"prompt": row["prompt"]}) or bool(system)
        assert one["given"] == ([{"role": "assistant", "content": text}] if talks else text), one["id"]
