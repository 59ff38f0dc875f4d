"""Whether an exception says that something is away which may come back, so that the same code may work later."""

from __future__ import annotations

import errno
import socket

_NETWORK = (ConnectionError, TimeoutError, socket.gaierror)

#: Base classes of the clients that environments use; importing these libraries for the classes would take seconds.
_NAMED = {
    ("requests.exceptions", "ConnectionError"),
    ("requests.exceptions", "Timeout"),
    ("urllib3.exceptions", "TimeoutError"),
    ("urllib3.exceptions", "ProtocolError"),
    ("httpx", "TransportError"),
    ("aiohttp.client_exceptions", "ClientConnectionError"),
    ("openai", "APIConnectionError"),
    ("anthropic", "APIConnectionError"),
}

#: Their subclasses, and others of the same modules, that trying again does not help.
_FINAL = {
    "SSLError", "ClientConnectorCertificateError", "UnsupportedProtocol", "LocalProtocolError", "OfflineModeIsEnabled",
}  # fmt: skip

_ERRNOS = {errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT}

#: What a server answers that is overloaded, restarting or behind a gateway that does not reach it.
_STATUSES = {408, 425, 429, 500, 502, 503, 504}


def away(error: BaseException | None) -> bool:
    """Whether the exception, or what it was raised from, comes from a network or a server that cannot be reached. An
    exception in a handler of such a one does not count: that is the author's."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if _away(error):
            return True
        reason = getattr(error, "reason", None)  # of urllib.error.URLError
        error = error.__cause__ or (reason if isinstance(reason, BaseException) else None)
    return False


def _away(error: BaseException) -> bool:
    classes = [(cls.__module__, cls.__name__) for cls in type(error).__mro__]
    if any(name in _FINAL for _, name in classes):
        return False
    if isinstance(error, _NETWORK) or (isinstance(error, OSError) and error.errno in _ERRNOS):
        return True
    if any(name == known and (module == of or module.startswith(of + ".")) for module, name in classes
           for of, known in _NAMED):  # fmt: skip
        return True
    answers = (error, getattr(error, "response", None))
    return any(getattr(a, attribute, None) in _STATUSES for a in answers if a is not None
               for attribute in ("status_code", "status", "code") if _is_client(classes))  # fmt: skip


def _is_client(classes: list[tuple[str, str]]) -> bool:
    """Whether an exception is one of a client of HTTP: a code of another one means something else."""
    return any(module.split(".")[0] in _CLIENTS for module, _ in classes)


_CLIENTS = {"urllib", "requests", "httpx", "aiohttp", "openai", "anthropic", "huggingface_hub"}
