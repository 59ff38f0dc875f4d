"""The connection with the supervisor: JSON-RPC 2.0, one message a line, over loopback (docs/trainer-protocol.md).

Only the training loop touches the model. A thread reads the connection and puts what the supervisor asks for, and its
answers, into a queue of commands; the loop takes them where it is safe: between steps and while it waits.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import socket
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from . import peer
from .errors import WorkerError
from .fields import ConfigError

PROTOCOL_VERSION = 2
REQUESTS = ("publish", "logprobs", "tokenize", "taken", "checkpoint", "pause", "update")  # of the supervisor
ANSWERS = {"sync": "synced", "turn": "turn", "prepared": "start"}  # commands that an answer of the supervisor becomes
CONNECT_WITHIN = 30.0


@dataclass
class Command:
    """One thing that the training loop is to do."""

    name: str
    body: dict[str, Any]
    answer: Future[Any] = field(default_factory=Future)


class Control:
    """A queue of commands, and the connection that fills it. Without an address only signals do."""

    def __init__(self, address: str | None = None, token: str | None = None, rank: int = 0):
        # A signal's handler puts a command here, whatever the loop is doing: a Queue would wait for its own lock.
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._ids = itertools.count(1)
        self._asked: dict[int, str] = {}
        self._sending = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False
        if address is not None:
            self._connect(address, token, rank)

    def _connect(self, address: str, token: str | None, rank: int) -> None:
        host, port = address.rsplit(":", 1)
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_WITHIN)
            peer.check(self._socket)
        except OSError as e:
            checks = ["Does the process that started this worker still run?"]
            raise WorkerError(f"the supervisor at {address} cannot be reached: {e}", checks, "supervisor") from e
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        lines = self._socket.makefile("rb")
        hello = {"token": token or "", "protocol": PROTOCOL_VERSION, "rank": rank, "pid": os.getpid()}
        self._send({"id": next(self._ids), "method": "hello", "params": hello})
        answer = json.loads(lines.readline() or b'{"error": {"message": "it closed the connection"}}')
        if "error" in answer:
            raise WorkerError(f"the supervisor refused this worker: {answer['error']['message']}", [], "supervisor")
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._read, args=(lines,), name="control", daemon=True)
        self._thread.start()

    def next(self, timeout: float) -> Command | None:
        """The next command, waiting at most `timeout` seconds."""
        try:
            return self.commands.get(timeout=timeout) if timeout > 0 else self.commands.get_nowait()
        except queue.Empty:
            return None

    def ask(self, name: str, **params: Any) -> None:
        """Asks the supervisor. Its answer comes as a command: see ANSWERS."""
        if self._socket is None:
            raise WorkerError(f"nobody can be asked for {name}: this worker has no supervisor",
                              ["Set control, or wait_for_sync = false."], "supervisor")  # fmt: skip
        number = next(self._ids)
        self._asked[number] = name
        self._send({"id": number, "method": name, "params": params})

    def notify(self, name: str, params: dict[str, Any]) -> None:
        """Tells the supervisor something, if there is one."""
        if self._socket is not None:
            self._send({"method": name, "params": params})

    def close(self) -> None:
        """Refuses what is still queued and ends the connection."""
        while (command := self.next(0)) is not None:
            command.answer.set_exception(WorkerError("the worker has ended", code="ended"))
        self._closed = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # the supervisor may have gone
                self._socket.shutdown(socket.SHUT_RDWR)
            self._thread.join(timeout=5)
            self._socket.close()

    def _send(self, message: dict[str, Any]) -> None:
        raw = json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"
        with self._sending, contextlib.suppress(OSError):  # the thread that reads sees the end of the connection
            if self._socket is not None:
                self._socket.sendall(raw)

    def _read(self, lines: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in lines:
                self._receive(json.loads(line))
        if not self._closed:  # the supervisor has died: nobody would take the weights, or know of this process
            self.commands.put(Command("stop", {}))

    def _receive(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            name = self._asked.pop(message["id"], None)
            if "error" in message:
                self.commands.put(Command("refused", {"name": name, "message": message["error"]["message"]}))
            elif name is not None:
                self.commands.put(Command(ANSWERS[name], message["result"]))
            return
        if message["method"] not in REQUESTS:
            error = {"code": -32601, "message": f"no such method: {message['method']}"}
            self._send({"id": message["id"], "error": error})
            return
        command = Command(message["method"], message.get("params") or {})
        command.answer.add_done_callback(lambda answer: self._answer(message["id"], answer))
        self.commands.put(command)

    def _answer(self, number: int, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is None:
            self._send({"id": number, "result": answer.result() or {}})
            return
        record = problem(error)
        self._send({"id": number, "error": {"code": -32000, "message": record["message"], "data": record}})


def problem(error: BaseException) -> dict[str, Any]:
    """code, message and checks of what went wrong with a command."""
    if isinstance(error, WorkerError):
        return error.record()
    if isinstance(error, ConfigError):
        return {"code": "bad_setting", "message": str(error), "checks": []}
    code = "bad_request" if isinstance(error, (KeyError, TypeError, ValueError)) else "internal"
    return {"code": code, "message": f"{type(error).__name__}: {error}", "checks": []}
