"""The control server: the supervisor's commands over HTTP on a Unix socket or loopback.

Only the training loop touches the model. A request thread puts a Command into a queue and waits for its answer; the
loop takes commands where it is safe: between steps and while it waits. GET /state is answered at once.
"""

from __future__ import annotations

import hmac
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from .errors import WorkerError
from .fields import ConfigError

COMMANDS = ("publish", "synced", "logprobs", "checkpoint", "stop", "update", "grant")
ANSWER_WITHIN = 600.0  # seconds; a step in progress is the only thing a command waits for
BODY_LIMIT = 64 << 20
PROTOCOL_VERSION = 1


@dataclass
class Command:
    """One request for the training loop."""

    name: str
    body: dict[str, Any]
    answer: Future[Any] = field(default_factory=Future)


class Control:
    """Serves until closed. `state` is called from request threads and must not touch the model."""

    def __init__(self, address: str, token: str | None, state: Callable[[], dict[str, Any]]):
        # A signal's handler puts a command here, whatever the loop is doing: a Queue would wait for its own lock.
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.token, self.state = token, state
        control = self

        class Handler(_Handler):
            owner = control

        if address.startswith("unix:"):
            path = address.removeprefix("unix:")
            Path(path).unlink(missing_ok=True)
            self.server: ThreadingHTTPServer = _UnixServer(cast(Any, path), Handler)
            os.chmod(path, 0o600)
            self.address = address
        else:
            host, port = address.rsplit(":", 1)
            self.server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
            self.address = f"http://{host}:{self.server.server_address[1]}"
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, name="control", daemon=True)
        self.thread.start()

    def announce(self, ready_file: str) -> None:
        """Writes the ready file in one step, readable by its owner only."""
        path = Path(ready_file)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as f:
            json.dump({"address": self.address, "pid": os.getpid(), "protocol": PROTOCOL_VERSION}, f)
        os.replace(temporary, path)

    def next(self, timeout: float) -> Command | None:
        """The next command, waiting at most `timeout` seconds."""
        try:
            return self.commands.get(timeout=timeout) if timeout > 0 else self.commands.get_nowait()
        except queue.Empty:
            return None

    def ask(self, name: str, body: dict[str, Any]) -> Any:
        """Called by request threads: hands a command to the loop and waits for its answer."""
        command = Command(name, body)
        self.commands.put(command)
        return command.answer.result(timeout=ANSWER_WITHIN)

    def close(self) -> None:
        """Refuses what is still queued and stops serving."""
        self.server.shutdown()
        self.server.server_close()
        while (command := self.next(0)) is not None:
            command.answer.set_exception(WorkerError("the worker has ended", code="ended"))
        self.thread.join(timeout=5)
        if self.address.startswith("unix:"):
            Path(self.address.removeprefix("unix:")).unlink(missing_ok=True)


class _UnixServer(ThreadingHTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "worker", 0


class _Handler(BaseHTTPRequestHandler):
    owner: Control
    protocol_version = "HTTP/1.1"
    timeout = 3600  # longer than clients keep an idle connection, so that it is never closed under a request

    def address_string(self) -> str:
        return "local"

    def log_message(self, *args: Any) -> None:
        """Requests are not logged: they come several times a second."""

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _allowed(self) -> bool:
        token = self.owner.token
        given = self.headers.get("Authorization", "")
        if token is None or hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return True
        self.close_connection = True
        self._reply(401, {"error": {"code": "unauthorized", "message": "a bearer token is needed", "checks": []}})
        return False

    def do_GET(self) -> None:
        self.rfile.read(min(int(self.headers.get("Content-Length") or 0), BODY_LIMIT))  # else it is the next request
        if not self._allowed():
            return
        if self.path == "/state":
            self._reply(200, self.owner.state())
        else:
            self._reply(404, {"error": {"code": "not_found", "message": f"no such route: GET {self.path}"}})

    def do_POST(self) -> None:
        if not self._allowed():
            return
        name = self.path.strip("/")
        length = int(self.headers.get("Content-Length") or 0)
        if length > BODY_LIMIT:
            self.close_connection = True
            self._reply(413, {"error": {"code": "too_large", "message": f"at most {BODY_LIMIT} bytes"}})
            return
        raw = self.rfile.read(length)
        try:
            body = json.loads(raw) if raw else {}
            if not isinstance(body, dict):
                raise ValueError("not an object")
        except ValueError as e:
            self._reply(400, {"error": {"code": "bad_json", "message": f"expected a JSON object: {e}"}})
            return
        if name not in COMMANDS:
            self._reply(404, {"error": {"code": "not_found", "message": f"no such route: POST {self.path}"}})
            return
        started = time.monotonic()
        try:
            answer = self.owner.ask(name, body)
        except ConfigError as e:
            self._reply(422, {"error": {"code": "bad_setting", "message": str(e), "checks": []}})
        except WorkerError as e:
            self._reply(409, {"error": e.record()})
        except TimeoutError:
            message = f"the training loop did not take the command within {ANSWER_WITHIN:.0f} s"
            self._reply(504, {"error": {"code": "busy", "message": message, "checks": []}})
        except (KeyError, TypeError, ValueError) as e:
            self._reply(400, {"error": {"code": "bad_request", "message": f"{type(e).__name__}: {e}", "checks": []}})
        except Exception as e:
            self._reply(500, {"error": {"code": "internal", "message": f"{type(e).__name__}: {e}", "checks": []}})
        else:
            self._reply(200, {"seconds": time.monotonic() - started, **(answer or {})})
