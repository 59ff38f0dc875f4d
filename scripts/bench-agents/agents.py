"""Token-exactness of ways to train on agents: 100 conversations with tools, a scripted model behind an engine that
keeps what it received and sampled, an agent that knows nothing of training, and the comparison.

usage: agents.py MODEL CONVERSATIONS STYLE ROOT KEY OUT   runs the agent against recipe's gateway, which ROOT names

run.sh has the whole.
"""

import dataclasses
import json
import random
import re
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

CONTEXT = 1 << 16
SPLITS = {"template": 0.0, "own": 0.02}  # of tokens; by style
OTHER_WRITING = {"template": 0.0, "own": 0.3}  # of answers


def add(a: float, b: float) -> str:
    """Adds two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return str(a + b)


def look(key: str) -> str:
    """Looks up a key.

    Args:
        key: The key.
    """
    return f"{key} is here: {len(key)} letters, “quoted”"


FUNCTIONS = {"add": add, "look": look}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": {
        "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}},
    {"type": "function", "function": {"name": "look", "description": "Looks up a key.", "parameters": {
        "type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}}},
]  # fmt: skip


def first_messages(number: int) -> list[dict[str, Any]]:
    return [
        {"role": "system", "content": "You are an agent. Use the tools."},
        {"role": "user", "content": f"[conversation {number}] Find out what is asked."},
    ]


def script(number: int, style: str) -> list[str]:
    """What the model says in a conversation, a text an answer: calls of tools, then a result."""
    r = random.Random(number)
    return [_calls(r, style) for _ in range(r.randint(2, 6))] + [f"The result is {r.randint(0, 999)}."]


def _calls(r: random.Random, style: str) -> str:
    own = r.random() < OTHER_WRITING[style]
    calls = []
    for _ in range(2 if r.random() < 0.2 else 1):
        if r.random() < 0.5:
            numbers = {"a": r.randint(0, 99), "b": r.randint(0, 99)}
            call = {"name": "add", "arguments": numbers}
        else:
            call = {"name": "look", "arguments": {"key": r.choice(["café", "name", "übergröße", "a/b"])}}
        if not own:
            text = json.dumps(call, ensure_ascii=False)
        else:  # as models write JSON
            text = r.choice([
                lambda c: json.dumps(c, separators=(",", ":"), ensure_ascii=False),
                lambda c: json.dumps(c),
                lambda c: json.dumps({"arguments": c["arguments"], "name": c["name"]}, ensure_ascii=False),
                lambda c: json.dumps(c, ensure_ascii=False).replace("{", "{ ").replace("}", " }"),
            ])(call)  # fmt: skip
        calls.append(f"<tool_call>\n{text}\n</tool_call>")
    before = r.choice(["", "", "Let me see.\n", "I need a tool for that.\n"])
    if own:
        before = r.choice(["", "Let me see. \n\n", "  First:\n", "Hm."])
    return before + "\n".join(calls)


@dataclasses.dataclass
class Exchange:
    """One call of the engine."""

    prompt: list[int]
    output: list[int]


class Model:
    """The scripted model. It knows from the prompt where a conversation stands."""

    def __init__(self, folder: str, style: str) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.style = style
        self.end = self.tokenizer.convert_tokens_to_ids("<|im_end|>")
        self.exchanges: list[Exchange] = []
        self._lock = threading.Lock()  # of the tokenizer

    def render(self, messages: list[dict[str, Any]], tools: Any) -> list[int]:
        """The chat template, as vLLM applies it: arguments of calls are read first."""
        for m in messages:
            for call in m.get("tool_calls") or []:
                if isinstance(call["function"]["arguments"], str):
                    call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        with self._lock:
            return self.tokenizer.apply_chat_template(
                messages, tools=tools, add_generation_prompt=True, return_dict=False
            )

    def answer(self, prompt: list[int]) -> tuple[list[int], str]:
        """Samples the next answer."""
        with self._lock:
            text = self.tokenizer.decode(prompt)
            number = int(re.findall(r"\[conversation (\d+)\]", text)[-1])
            base = re.findall(r"\[step (\d+)\]", text)
            step = text.count("<|im_start|>assistant") - 1 + (int(base[-1]) if base else 0)
            answers = script(number, self.style)
            said = "A title" if "Name this conversation" in text else answers[min(step, len(answers) - 1)]
            output = self._sampled(said, random.Random(number * 1000 + step)) + [self.end]
            self.exchanges.append(Exchange(list(prompt), output))
            return output, said

    def _sampled(self, text: str, r: random.Random) -> list[int]:
        """Tokens of a text. Models sample some words in other tokens than a tokenizer gives."""
        out: list[int] = []
        for token in self.tokenizer.encode(text, add_special_tokens=False):
            word = self.tokenizer.decode([token])
            if len(word) > 2 and word.isascii() and "<" not in word and r.random() < SPLITS[self.style]:
                halves = [self.tokenizer.encode(h, add_special_tokens=False) for h in (word[:2], word[2:])]
                if all(len(h) == 1 for h in halves) and self.tokenizer.decode(halves[0] + halves[1]) == word:
                    out += halves[0] + halves[1]
                    continue
            out.append(token)
        return out


def serve(model: Model, port: int = 0) -> ThreadingHTTPServer:
    """The engine over HTTP: the routes of vLLM that take and give tokens."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.send({"data": [{"id": "policy", "max_model_len": CONTEXT}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/tokenize":
                self.send({"tokens": model.render(body["messages"], body.get("tools")), "max_model_len": CONTEXT})
                return
            output, said = model.answer(body["token_ids"] if "token_ids" in body else body["prompt"])
            choice: dict[str, Any] = {"index": 0, "text": said, "finish_reason": "stop", "token_ids": output}
            if self.path == "/inference/v1/generate":
                choice["logprobs"] = {"content": [{"token": f"token_id:{t}", "logprob": -0.5} for t in output]}
            else:
                choice["logprobs"] = {"token_logprobs": [-0.5] * len(output)}
            self.send({"choices": [choice], "usage": {"completion_tokens": len(output)}})

        def send(self, value: Any) -> None:
            text = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def post(url: str, key: str, body: Any, method: str = "POST") -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode() if body is not None else None, method=method,
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"})  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        raise RuntimeError(f"{url} is answered with {e.code} {e.read().decode()}") from e


def agent(base_url: str, key: str, number: int, rewrites: bool) -> None:
    """A program that speaks to a model by base URL. With rewrites it asks for a title first, and sums up what was said
    after three answers, as coding agents do."""

    def ask(messages: list[dict[str, Any]], tools: Any = TOOLS) -> dict[str, Any]:
        body = {"model": "policy", "messages": messages} | ({"tools": tools} if tools else {})
        message = post(f"{base_url}/chat/completions", key, body)["choices"][0]["message"]
        return {k: v for k, v in message.items() if v is not None}

    messages = first_messages(number)
    if rewrites:
        ask([{"role": "user", "content": f"Name this conversation: {messages[1]['content']}"}], None)
    for answered in range(1, 100):
        said = ask(messages)
        messages.append(said)
        if not said.get("tool_calls"):
            return
        for call in said["tool_calls"]:
            function = call["function"]
            result = FUNCTIONS[function["name"]](**json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        if rewrites and answered == 3:
            messages = [*first_messages(number), {"role": "user", "content": "[step 3] Three answers were given."}]


def compare(way: str, model: Model, rollouts: list[list[tuple[list[int], list[bool]]]]) -> dict[str, Any]:
    """Looks for each of the engine's answers in what is trained: a sequence of tokens and what of it is trained."""
    turns = tokens = exact = once = more = 0
    sequences = [s for r in rollouts for s in r]
    for x in model.exchanges:
        at, end = len(x.prompt), len(x.prompt) + len(x.output)
        found = [mask[at:end] for ids, mask in sequences if ids[:end] == x.prompt + x.output]
        times = [sum(mask[i] for mask in found) for i in range(len(x.output))]
        turns, tokens = turns + 1, tokens + len(x.output)
        exact += any(all(mask) for mask in found)
        once += sum(t >= 1 for t in times)
        more += sum(t > 1 for t in times)
    wrong = sum(sum(mask) for _, mask in sequences) - sum(
        sum(mask[len(x.prompt) : len(x.prompt) + len(x.output)])
        for x in model.exchanges
        for ids, mask in sequences
        if ids[: len(x.prompt) + len(x.output)] == x.prompt + x.output
    )
    return {"way": way, "style": model.style, "rollouts": len(rollouts), "sequences": len(sequences), "turns": turns,
            "turns_exact": exact, "tokens": tokens, "tokens_trained": once, "tokens_trained_again": more,
            "tokens_trained_elsewhere": wrong}  # fmt: skip


def report(found: dict[str, Any], out: str) -> None:
    with Path(out).open("a") as f:
        f.write(json.dumps(found) + "\n")
    print(f"{found['way']}, {found['style']}: {found['turns_exact']} of {found['turns']} turns exact, "
          f"{found['tokens_trained']} of {found['tokens']} sampled tokens trained after what the engine received, "
          f"{found['tokens_trained_again']} more than once, {found['tokens_trained_elsewhere']} after something else, "
          f"{found['sequences']} sequences of {found['rollouts']} rollouts")  # fmt: skip


def session(root: str, key: str, number: int, rewrites: bool) -> list[tuple[list[int], list[bool]]]:
    """One rollout of the agent in a session of recipe's gateway."""
    opened = post(f"{root}/recipe/v1/sessions", key, {"task": f"conversation {number}"})
    agent(opened["base_url"], opened["key"], number, rewrites)
    post(f"{root}/recipe/v1/sessions/{opened['id']}/reward", key, {"reward": 1})
    got = post(f"{root}/recipe/v1/sessions/{opened['id']}", key, None, "GET")
    return [(s["tokens"], [m != -100 for m in s["masks"]]) for s in got["sequences"]]


def main() -> None:
    folder, count, style, root, key, out = sys.argv[1:]
    model = Model(folder, style)
    server = serve(model, int(root.rsplit(":", 1)[1]) + 1)  # where main.go expects it
    with ThreadPoolExecutor(8) as pool:
        for rewrites in False, True:
            model.exchanges.clear()
            rollouts = list(pool.map(lambda n: session(root, key, n, rewrites), range(int(count))))  # noqa: B023
            report(compare("recipe" + ", rewrites" * rewrites, model, rollouts), out)
    server.shutdown()


if __name__ == "__main__":
    main()
