"""The key on every path of a vLLM server, through --middleware.

vLLM's own check covers /v1 and a few other prefixes. Its development routes (/collective_rpc, /sleep, /pause, /reset_prefix_cache, …) reach
weights and files, and without this class they answer whoever can open a connection: each user of the machine, and web pages of its
browsers. The class is outside of every other middleware, so that nothing is answered, not even OPTIONS, before the key was seen.
"""

import hashlib
import hmac
import os


class Guard:
    """ASGI middleware that answers 401 to whatever does not carry the key in VLLM_API_KEY as its bearer token."""

    def __init__(self, app):
        key = os.environ.get("VLLM_API_KEY", "")
        if not key:
            raise RuntimeError("VLLM_API_KEY is not set: the server would be open to everyone")
        self.app, self.digest = app, _digest(key.encode())

    async def __call__(self, scope, receive, send):
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

    def _knows(self, scope):
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        # Digests have one length, so the time of the comparison tells nothing about the key.
        return scheme.lower() == b"bearer" and hmac.compare_digest(_digest(token), self.digest)


def _digest(key):
    return hashlib.sha256(key).digest()
