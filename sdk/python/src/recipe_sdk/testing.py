"""For tests of environments: a fake policy and the pytest fixture run_environment (see environment/testing.py). For
tests of trainers: a small trajectory server with leases and faults to order, and groups that a tiny model could have
sampled."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import queue
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from .environment.testing import FakePolicy, Played, run

try:
    import pytest
except ImportError:  # run and FakePolicy work without it
    pass
else:

    @pytest.fixture
    def run_environment(tmp_path: Path) -> Callable[..., list[Played]]:
        """run, with a folder of the test's own."""
        return functools.partial(run, state=tmp_path)


__all__ = ["FakeAPI", "FakePolicy", "Played", "Supervisor", "make_group", "run", "scores_of", "wait_for"]

VOCABULARY = 61


def make_group(seed: int, n: int = 4, env: int = 0, version: int | None = 0) -> dict[str, Any]:
    """n completions of one prompt; log-probabilities near those of an untrained model."""
    r = random.Random(seed)
    prompt = [r.randrange(1, VOCABULARY) for _ in range(r.randrange(2, 6))]
    tokens, masks, logprobs, scores = [], [], [], []
    for _ in range(n):
        answer = [r.randrange(1, VOCABULARY) for _ in range(r.randrange(1, 7))]
        tokens.append(prompt + answer)
        masks.append([-100] * len(prompt) + answer)
        logprobs.append([1.0] * len(prompt) + [-4.1 + r.uniform(-0.05, 0.05) for _ in answer])
        scores.append(float(r.random() < 0.5) + 0.25 * (answer[0] % 2))
    group: dict[str, Any] = {
        "tokens": tokens, "masks": masks, "scores": scores, "inference_logprobs": logprobs, "env_id": env,
        "advantages": None, "ref_logprobs": None, "overrides": None, "generation_params": None,
    }  # fmt: skip
    if version is not None:
        group["policy_version"] = version
    return group


def floats(text: str) -> list[float]:
    """float32 in base64, as the trajectory API takes them."""
    raw = base64.b64decode(text)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def scores_of(model: str, group: dict[str, Any]) -> list[float]:
    """Log-probabilities of a group's trained tokens, sequence after sequence, by the model in a folder."""
    import torch
    from transformers import AutoModelForCausalLM

    policy, out = AutoModelForCausalLM.from_pretrained(model).float(), list[float]()
    for tokens, mask in zip(group["tokens"], group["masks"], strict=True):
        ids = torch.tensor(tokens)
        with torch.no_grad():
            every = policy(ids[None]).logits[0, :-1].log_softmax(-1).gather(-1, ids[1:, None])[:, 0]
        out += [float(x) for x, m in zip(every, mask[1:], strict=True) if m != -100]
    return out


class FakeAPI:
    """Answers like run-api. `batches` yields each batch's groups by number; `fault(method, path, count)` may return
    (status, body) to answer instead, or "drop" to close the connection. early: batches are given while another trains,
    too, unless there is a fault, which is for the trainer's usual requests."""

    def __init__(
        self, batch: Callable[[int], list[Any]] | None = None, leases: bool = True, limit: int = 10**9,
        fault: Callable[[str, str, int], Any] | None = None, early: bool = True,
    ):  # fmt: skip
        self.early = early and fault is None
        self.batch = batch or (lambda k: [make_group(100 * k + j) for j in range(2)])
        self.leases, self.limit, self.fault = leases, limit, fault
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.registered: list[dict[str, Any]] = []
        self.token: str | None = None
        self.formed = 0
        self.leased: dict[str, int] = {}
        self.back: list[int] = []
        self.acked: list[int] = []
        self.versions: list[int] = []
        self.trained: dict[int, list[dict[str, Any]]] = {}  # what was reported of a batch, decoded
        self.lock = threading.Lock()
        api = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def reply(self, status: int, body: Any) -> None:
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def serve(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with api.lock:
                    result = api.handle(self.command, self.path, json.loads(raw) if raw else {}, self.headers)
                if result == "drop":
                    self.connection.close()
                else:
                    self.reply(*result)

            do_GET = do_POST = serve

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def handle(self, method: str, path: str, body: dict[str, Any], headers: Any) -> Any:
        url, asked = urlparse(path), parse_qs(urlparse(path).query)
        if "early" in asked and not self.early:
            return 200, {"batch": None}
        count = sum(m == method and urlparse(p).path == url.path for m, p, _ in self.requests)
        self.requests.append((method, path, body))
        self.token = headers.get("Authorization")
        if self.fault and (result := self.fault(method, url.path, count)) is not None:
            return result
        if url.path == "/status":
            return 200, {"current_step": self.formed, "queue_size": 0}
        if url.path == "/register":
            self.registered.append(body)
            self.reclaim()  # as the built-in server does: what the trainer before had not acknowledged goes to this one
            return 200, {"uuid": 2**100 + len(self.registered)}
        if url.path == "/policy_version":
            self.versions.append(body["version"])
            return 200, body
        if url.path == "/batch":
            return 200, self.take("lease" in asked)
        if url.path.endswith("/release"):
            self.back = sorted({*self.back, self.leased.pop(url.path.split("/")[2])})
            return 200, {"status": "success"}
        if url.path.endswith("/ack"):
            lease = url.path.split("/")[2]
            if lease not in self.leased:
                return 404, {"detail": "unknown lease"}
            number = self.leased[lease]
            if number not in self.acked:
                self.acked.append(number)
            return 200, {"status": "success"}
        if url.path.endswith("/trained"):
            number = self.leased[url.path.split("/")[2]]
            self.trained[number] = [{k: floats(v) if isinstance(v, str) else v for k, v in g.items()}
                                    for g in body["groups"]]  # fmt: skip
            return 200, {"status": "success", "recorded": len(body["groups"])}
        return 404, {"detail": "Not Found"}

    def take(self, lease: bool) -> dict[str, Any]:
        if not self.registered:
            return {"status": "error", "message": "Trainer not registered. Call /register first.", "batch": []}
        if self.back:
            number = self.back.pop(0)
        elif self.formed < self.limit:
            number, self.formed = self.formed, self.formed + 1
        else:
            return {"batch": None}
        answer: dict[str, Any] = {"batch": self.batch(number)}
        if lease and self.leases:
            lease_id = answer["id"] = f"L{number}-{len(self.requests)}"
            self.leased[lease_id] = number
        return answer

    def reclaim(self) -> None:
        self.back = sorted({n for n in self.leased.values() if n not in self.acked} | set(self.back))
        self.leased = {k: n for k, n in self.leased.items() if n in self.acked}

    def expire(self) -> None:
        """All leases that were not acknowledged run out."""
        with self.lock:
            self.reclaim()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(timeout=5)


def wait_for(worker: Any, phase: str) -> dict[str, Any]:
    """Waits until a worker under control is in a phase; its state then."""
    until = time.monotonic() + 300
    while time.monotonic() < until:
        state = worker.events.snapshot()
        if state["phase"] == phase:
            return dict(state)
        time.sleep(0.02)
    raise AssertionError(f"never reached {phase}: {state}")


class Supervisor:
    """The supervisor's end of the connection, for one worker after another: it asks, and answers when told to."""

    def __init__(self, token: str = "abc") -> None:
        self.token = token
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.ids = itertools.count(1)
        self.answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.asked: dict[str, queue.Queue[Any]] = {"sync": queue.Queue(), "turn": queue.Queue()}
        self.events: list[dict[str, Any]] = []
        self.hellos: list[dict[str, Any]] = []
        self.ready = threading.Event()
        self.connection: socket.socket | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        for line in connection.makefile("rb"):
            message = json.loads(line)
            method, number = message.get("method"), message.get("id")
            if method == "hello":
                self._greet(connection, number, message["params"])
            elif method == "event":
                self.events.append(message["params"])
            elif method:
                self.asked[method].put((connection, number, message["params"]))
            else:
                self.answers.pop(number).put(message)

    def _greet(self, connection: socket.socket, number: int, params: dict[str, Any]) -> None:
        self.hellos.append(params)
        if params["token"] != self.token:
            self._send(connection, {"id": number, "error": {"code": -32000, "message": "the token is wrong"}})
            connection.close()
            return
        self.connection = connection
        self._send(connection, {"id": number, "result": {}})
        self.ready.set()

    def _send(self, connection: socket.socket, message: dict[str, Any]) -> None:
        connection.sendall(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def call(self, name: str, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """("ok", result) or (code, error) of a request to the worker."""
        assert self.ready.wait(300) and self.connection is not None
        number = next(self.ids)
        answer: queue.Queue[dict[str, Any]] = queue.Queue()
        self.answers[number] = answer
        self._send(self.connection, {"id": number, "method": name, "params": params})
        message = answer.get(timeout=300)
        if "error" in message:
            return message["error"].get("data", {}).get("code", message["error"]["code"]), message["error"]
        return "ok", message["result"]

    def wanted(self, name: str) -> Any:
        """Waits until the worker asks for it; its parameters. The request stays."""
        until = time.monotonic() + 300
        while self.asked[name].empty() and time.monotonic() < until:
            time.sleep(0.005)
        return self.asked[name].queue[0][2]

    def answer(self, name: str, result: dict[str, Any]) -> Any:
        """Answers the worker's oldest request of that name, waiting for it; its parameters."""
        connection, number, params = self.asked[name].get(timeout=300)
        self._send(connection, {"id": number, "result": result})
        return params

    def close(self) -> None:
        """Ends the connection."""
        self.listener.close()
        if self.connection is not None:
            self.connection.close()
