"""Decompression up to a limit."""

import contextlib
import gzip
import http.server
import threading
import zlib

import pytest

from recipe_sdk import api, inflate
from recipe_sdk.errors import AtroposAPIError


@pytest.mark.parametrize("content", [b"", b"abc", b"ab" * 50_000])
def test_what_fits_is_inflated(content):
    packed = gzip.compress(content)
    assert inflate.gunzip(packed, len(content)) == content
    assert inflate.gunzip(packed + packed + b"\0\0", 2 * len(content)) == 2 * content


def test_a_bomb_is_refused():
    packed = gzip.compress(bytes(10 << 20))
    with pytest.raises(inflate.TooLarge):
        inflate.gunzip(packed, 1 << 20)
    with pytest.raises(inflate.TooLarge):
        inflate.gunzip(gzip.compress(bytes(1 << 20)) * 2, 1 << 20)


def test_what_is_no_gzip_is_an_error():
    packed = gzip.compress(b"abc" * 100)
    with pytest.raises(EOFError):
        inflate.gunzip(packed[:-9], 1000)
    for broken in (b"abc", packed + b"abc", packed[:-8] + bytes(8)):
        with pytest.raises(gzip.BadGzipFile):
            inflate.gunzip(broken, 1000)


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_of_the_api_has_a_limit(packed, monkeypatch):
    class Endless(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            if packed:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            pack = zlib.compressobj(9, zlib.DEFLATED, 31)
            for _ in range(1000):
                self.wfile.write(pack.compress(bytes(1 << 14)) if packed else b" " * (1 << 14))
            self.wfile.write(pack.flush() if packed else b"")

        def handle(self):
            with contextlib.suppress(OSError):  # the client has left
                super().handle()

        def log_message(self, *_):
            pass

    monkeypatch.setattr(api, "MOST_ANSWER", 1 << 20)
    with http.server.HTTPServer(("127.0.0.1", 0), Endless) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            client = api.Client(f"http://127.0.0.1:{server.server_port}", None, 30)
            with pytest.raises(AtroposAPIError) as caught:
                client.call("GET", "/batch")
        finally:
            server.shutdown()
            thread.join()
    assert caught.value.kind == "too_large"
