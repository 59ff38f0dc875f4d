"""Decompression up to a limit: a few kilobytes of gzip may inflate to gigabytes."""

from __future__ import annotations

import gzip
import zlib


class TooLarge(ValueError):
    """The content has more bytes than its limit."""


def gunzip(data: bytes, limit: int) -> bytes:
    """The content of a gzip file of at most limit bytes, with the errors of gzip.decompress."""
    parts: list[bytes] = []
    while data:
        member = zlib.decompressobj(31)  # gzip, with its header and checksum
        try:
            parts.append(member.decompress(data, limit + 1))
        except zlib.error as e:
            raise gzip.BadGzipFile(str(e)) from e
        limit -= len(parts[-1])
        if limit < 0:
            raise TooLarge(f"{len(data)} bytes of gzip inflate to more than the limit")
        if not member.eof:
            raise EOFError("the gzip file ends before its end-of-stream marker")
        data = member.unused_data.lstrip(b"\0")
    return b"".join(parts)
