"""What makes a setup fail for good, and what it is started again for."""

from __future__ import annotations

import asyncio
import errno
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message

import pytest

from recipe_sdk import Environment, InfraFailure
from recipe_sdk.environment.away import away
from recipe_sdk.environment.serve import Server, refusal


def refused() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)


def status(code: int) -> Callable[[], None]:
    def answer() -> None:
        raise urllib.error.HTTPError("http://x", code, "said so", Message(), None)

    return answer


def of(module: str, name: str, base: type[Exception] = Exception) -> Callable[[], None]:
    """Raises an exception as a library has it, which is not installed here."""

    def raises() -> None:
        raise type(name, (base,), {"__module__": module})("no answer")

    return raises


def from_cause() -> None:
    try:
        refused()
    except OSError as e:
        raise ValueError("the words could not be fetched") from e


def in_a_handler() -> None:
    try:
        refused()
    except OSError:
        {}["fallback"]  # type: ignore[index]


def raising(error: Exception) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


@pytest.mark.parametrize(
    ("setup", "again"),
    [
        (refused, True),
        (from_cause, True),
        (raising(TimeoutError("no answer")), True),
        (raising(socket.gaierror(socket.EAI_AGAIN, "not now")), True),
        (raising(OSError(errno.EHOSTUNREACH, "no route")), True),
        (raising(InfraFailure("the judge is away")), True),
        (status(503), True),
        (of("requests.exceptions", "ConnectionError", OSError), True),
        (of("httpx", "TransportError"), True),
        (of("openai", "APIConnectionError"), True),
        (in_a_handler, False),
        (status(404), False),
        (status(401), False),
        (of("mine", "ConnectionError"), False),
        (of("httpx", "UnsupportedProtocol"), False),
        (raising(FileNotFoundError("words.txt")), False),
        (raising(PermissionError(errno.EACCES, "no")), False),
        (raising(ValueError("no rows")), False),
    ],
)
def test_an_unreachable_service_in_setup_is_no_mistake(setup: Callable[[], None], again: bool) -> None:
    class Words(Environment):
        def setup(self) -> None:
            setup()

    async def opened() -> dict[str, object]:
        server = Server(Words)
        server.loop = asyncio.get_running_loop()
        try:
            await server.on_open({}, "words", ".", ".")
        except Exception as e:
            data: dict[str, object] = refusal(e)["error"]["data"]
            return data
        return {}

    data = asyncio.run(opened())
    assert (data["kind"] == "infra") is again, data
    assert not str(data["message"]).startswith("SetupAway")
    assert str(data["file"]).endswith(".py")


def test_exceptions_that_are_each_others_cause() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not away(first)
