"""A program that knows nothing of training: three turns with a model, by base URL and key. Python alone is enough."""

import json
import os
import sys
import urllib.request

URL = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
HEADERS = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}


def ask(messages: list[dict[str, str]]) -> str:
    """The model's answer to a conversation."""
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages}).encode()
    with urllib.request.urlopen(urllib.request.Request(URL, body, HEADERS)) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def main(digits: str) -> None:
    """Asks for one digit after the other, and writes what the model answered."""
    messages: list[dict[str, str]] = []
    answers = []
    for digit in digits:
        messages.append({"role": "user", "content": digit})
        answers.append(ask(messages))
        messages.append({"role": "assistant", "content": answers[-1]})
    with open("answers.json", "w") as file:
        json.dump(answers, file)


main(sys.argv[1])
