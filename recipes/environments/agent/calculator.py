"""An agent with one tool, as a person without training in mind would write it. It needs Python alone.

The model asks for a calculation ("CALC: 23 * 31"), reads the result ("RESULT: 713"), and goes on until it answers
("ANSWER: 770").
"""

import json
import os
import re
import sys
import urllib.request

URL = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
HEADERS = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}

EXAMPLES = [
    ("23 * 31 + 57", ["CALC: 23 * 31", "RESULT: 713", "CALC: 713 + 57", "RESULT: 770", "ANSWER: 770"]),
    ("84 * 12 + 9", ["CALC: 84 * 12", "RESULT: 1008", "CALC: 1008 + 9", "RESULT: 1017", "ANSWER: 1017"]),
]
CALL = re.compile(r"CALC: (\d{1,6}) ([*+-]) (\d{1,6})\s*$")
ANSWER = re.compile(r"ANSWER: (-?\d+)\s*$")


def ask(messages: list[dict[str, str]]) -> str:
    """The model's answer to a conversation."""
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages, "max_tokens": 24}).encode()
    with urllib.request.urlopen(urllib.request.Request(URL, body, HEADERS)) as response:
        return json.load(response)["choices"][0]["message"]["content"]


def calculate(left: int, sign: str, right: int) -> int:
    """The tool."""
    return {"*": left * right, "+": left + right, "-": left - right}[sign]


def main(question: str) -> None:
    """Answers one question, in at most five turns."""
    messages = []
    for example, turns in EXAMPLES:
        for i, text in enumerate([f"What is {example}?", *turns]):
            messages.append({"role": "user" if i % 2 == 0 else "assistant", "content": text})
    messages.append({"role": "user", "content": f"What is {question}?"})
    for _ in range(5):
        said = ask(messages).strip()
        messages.append({"role": "assistant", "content": said})
        if answer := ANSWER.match(said):
            print(answer[1])
            with open("answer.txt", "w") as file:
                file.write(answer[1])
            return
        call = CALL.match(said)
        result = calculate(int(call[1]), call[2], int(call[3])) if call else "no calculation was asked for"
        messages.append({"role": "user", "content": f"RESULT: {result}"})


if __name__ == "__main__":
    main(sys.argv[1])
