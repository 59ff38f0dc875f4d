"""A plain agent: each answer that has a block of shell code is run, and an answer without one ends the work. Python
alone is enough."""

import json
import os
import re
import subprocess
import sys
import urllib.request

URL = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
HEADERS = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
CODE = re.compile(r"```(?:bash|sh)?\n(.*?)```", re.DOTALL)
TURNS = 8
OUTPUT = 2000  # characters of a command's output that the model reads


def ask(messages: list[dict[str, str]]) -> str:
    """The model's answer to a conversation."""
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages}).encode()
    with urllib.request.urlopen(urllib.request.Request(URL, body, HEADERS)) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def main(instruction: str) -> None:
    """Works on the instruction, and writes the last answer into answer.txt."""
    messages = [{"role": "user", "content": instruction}]
    for _ in range(TURNS):
        answer = ask(messages)
        messages.append({"role": "assistant", "content": answer})
        code = CODE.search(answer)
        if code is None:
            break
        done = subprocess.run(["sh", "-c", code[1]], capture_output=True, text=True, timeout=60)
        messages.append({"role": "user", "content": (done.stdout + done.stderr)[-OUTPUT:] or "no output"})
    with open("answer.txt", "w") as file:
        file.write(answer)


main(sys.argv[1].strip())
