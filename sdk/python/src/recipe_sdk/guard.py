"""The key on every path of an engine's HTTP server.

Engines check their key on some of their routes only; others reach weights and files, and without this class they answer
whoever can open a connection: each user of the machine, and web pages of its browsers. The class goes outside of every
route, so that nothing is answered, not even OPTIONS, before the key was seen.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Any

Message = dict[str, Any]
App = Callable[..., Awaitable[None]]


class Guard:
    """ASGI middleware that answers 401 to whatever does not carry the key as its bearer token."""

    def __init__(self, app: App, key: str) -> None:
        if not key:
            raise RuntimeError("there is no key: the server would be open to everyone")
        self.app, self.digest = app, _digest(key.encode())

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        kind = scope["type"]
        if kind == "lifespan" or self._knows(scope):
            await self.app(scope, receive, send)
        elif kind == "http":
            body = b'{"error":{"message":"Unauthorized","type":"unauthorized","code":401}}'
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        elif kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        # nothing else is answered at all

    def _knows(self, scope: Message) -> bool:
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        # Digests have one length, so the time of the comparison tells nothing about the key.
        return bool(scheme.lower() == b"bearer") and hmac.compare_digest(_digest(token), self.digest)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
