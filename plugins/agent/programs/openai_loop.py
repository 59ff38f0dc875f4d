"""`agent = "openai"`: a loop over Chat Completions with one tool. It ends with the first answer that calls no tool."""

from __future__ import annotations

import json
import os
from typing import Any

from openai import OpenAI
from recipe_shell import arguments, bash

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command of bash in the working directory. Returns what it prints and its exit code.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def result(text: str) -> str:
    """What a call of the tool gives: an error where the model's arguments cannot be read."""
    try:
        return bash(str(json.loads(text)["command"]))
    except (ValueError, KeyError, TypeError) as e:
        return f"error: expected an object with command, got {text[:200]} ({e!r})"


def main() -> None:
    asked = arguments()
    client, model = OpenAI(), os.environ["OPENAI_MODEL"]
    messages: list[Any] = [{"role": "system", "content": asked.system}, {"role": "user", "content": asked.instruction}]
    while True:
        said = client.chat.completions.create(model=model, messages=messages, tools=[TOOL]).choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            print(said.content)
            return
        for call in said.tool_calls:
            text = result(call.function.arguments) if call.type == "function" else "error: there is only the tool bash"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


if __name__ == "__main__":
    main()
