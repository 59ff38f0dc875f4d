"""A small JSON client over the standard library. Failures become AtroposAPIError with a kind and what to check."""

from __future__ import annotations

import errno
import json
import re
import socket
import urllib.error
import urllib.request
from typing import Any

from . import columns, inflate, peer
from .errors import AtroposAPIError

MOST_ANSWER = 2 << 30
"""How many bytes an answer may have after decompression."""


def shown(url: str) -> str:
    """A URL as errors and events may quote it: without the token of /t/TOKEN and without a name and password."""
    url = re.sub(r"(://)[^/@]+@", r"\1<token>@", url)
    return re.sub(r"(://[^?#]*?/t/)[^/?#]+", r"\1<token>", url)


def _checks(url: str) -> list[str]:
    return [
        f"Is the trajectory API running? `curl {url}/status` must answer with current_step and queue_size.",
        "Is data.url right: scheme, host, port, path prefix, no trailing slash?",
        "Is something between the two, such as a firewall, a proxy, or a token that is missing (data.token)?",
    ]


def _broken(error: BaseException, what: str, url: str) -> AtroposAPIError:
    """A transport failure by its cause."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    number = getattr(cause, "errno", None)
    if isinstance(cause, (socket.timeout, TimeoutError)):
        kind, text = "timeout", "no answer in time"
    elif isinstance(cause, ConnectionRefusedError):
        kind, text = "refused", "connection refused: nothing listens there"
    elif isinstance(cause, socket.gaierror):
        kind, text = "unreachable", "the host name is unknown"
    elif number in (errno.ENETUNREACH, errno.EHOSTUNREACH):
        kind, text = "unreachable", "no route to the host"
    else:
        kind, text = "closed", f"the connection broke ({cause})"
    return AtroposAPIError(kind, f"{what} at {url}: {text}", _checks(url))


class Client:
    """Requests relative to a base URL, which may have a path prefix."""

    def __init__(self, url: str, token: str | None, timeout: float):
        self.url, self.token, self.timeout = url.rstrip("/"), token, timeout
        self.shown = shown(self.url)
        # Without a token the server may be anyone's.
        secret = token or "/t/" in self.url
        self.opener = peer.opener(self.url) if secret else urllib.request.build_opener()

    def call(self, method: str, path: str, body: Any = None, timeout: float | None = None) -> Any:
        """The decoded JSON answer of a 2xx reply that is not an error in disguise."""
        return self.fetch(method, path, body, timeout)[0]

    def fetch(
        self, method: str, path: str, body: Any = None, timeout: float | None = None
    ) -> tuple[Any, columns.Encoded]:
        """The same, with the answer as it came."""
        what = f"{method} {path}"
        headers = {
            "Accept-Encoding": "gzip",
            "Accept": columns.accept() if path.startswith("/batch") else "application/json",
        }
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with self.opener.open(request, timeout=timeout or self.timeout) as reply:
                raw, encoding = reply.read(MOST_ANSWER + 1), reply.headers.get("Content-Encoding", "")
                kind = reply.headers.get("Content-Type", "")
        except urllib.error.HTTPError as e:
            kind = "http_4xx" if e.code < 500 else "http_5xx"
            text = e.read(500).decode("utf-8", "replace")
            said = f"{what} at {self.shown}: HTTP {e.code}: {text}"
            raise AtroposAPIError(kind, said, _checks(self.shown)) from e
        except (urllib.error.URLError, OSError, EOFError) as e:
            raise _broken(e, what, self.shown) from e
        except Exception as e:  # http.client's own errors: a reply cut short, a line that is no HTTP
            raise _broken(e, what, self.shown) from e
        arrow = kind.startswith(columns.CONTENT_TYPE)
        try:
            if len(raw) > MOST_ANSWER:
                raise inflate.TooLarge
            raw = inflate.gunzip(raw, MOST_ANSWER) if "gzip" in encoding else raw
            came = columns.Encoded("arrow" if arrow else "json", raw)
            answer = came.decode()
        except inflate.TooLarge as e:
            said = f"{what} at {self.shown}: the answer has more than 2 GiB: use a smaller data.batch_size"
            raise AtroposAPIError("too_large", said, _checks(self.shown)) from e
        except (ValueError, OSError, EOFError, RecursionError, LookupError, TypeError, NotImplementedError) as e:
            text = f"the answer is not {'a whole Arrow stream' if arrow else 'JSON'}"
            raise AtroposAPIError("not_json", f"{what} at {self.shown}: {text}", _checks(self.shown)) from e
        if isinstance(answer, dict) and answer.get("status") == "error":
            # run-api answers 200 with this; taken for "no batch yet" it would be waited on for ever
            message = str(answer.get("message") or answer.get("error") or answer)
            raise AtroposAPIError("status", f"{what} at {self.shown}: {message}", _checks(self.shown))
        return answer, came
