"""The user who owns the process at the other end of a TCP connection on loopback.

Every user of a machine can listen on a port of loopback. A client that holds a token calls `check` before it sends
anything. The kernel's tables of sockets in /proc/net have the owners (Linux; elsewhere nothing is checked).
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import pathlib
import socket
import struct
import urllib.parse
import urllib.request

_LISTEN = "0A"
_TABLES = "/proc/net"


class StrangerError(OSError):
    """The process at the other end belongs to another user."""


def check(connection: socket.socket, tables: str = _TABLES) -> None:
    """Raises StrangerError when the other end belongs to neither this user nor root, and OSError when the kernel does
    not know. Connections that leave the machine, and those of unix sockets, pass."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or not os.path.isdir(tables):
        return
    here, there = _address(connection.getsockname()[:2]), _address(connection.getpeername()[:2])
    if not there[0].is_loopback and here[0] != there[0]:
        return
    uid = _owner(there, here, tables)
    if uid not in (0, os.geteuid()):
        at = f"{there[0]}:{there[1]}"
        raise StrangerError(f"refused: {at} belongs to user {uid}, this is user {os.geteuid()}: run both as one user")


Address = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


def _owner(of: Address, to: Address, tables: str) -> int:
    # A connection that waits to be accepted has inode 0. It belongs to its listener, and is reset when that is closed:
    # the listener's user counts if the connection still waits after the listener was seen.
    for _ in range(3):
        state, uid, inode = _entry(of, to, tables)
        if state == _LISTEN:
            raise ConnectionResetError("the connection is gone")
        if inode:
            return uid
        listener = _entry(of, None, tables)
        state, _, inode = _entry(of, to, tables)
        if state != _LISTEN and not inode:
            return listener[1]
    raise ConnectionResetError("the connection changed while its owner was looked up")


def _entry(of: Address, to: Address | None, tables: str) -> tuple[str, int, int]:
    """State, user and inode of a connection; where there is none, of the listener at `of`."""
    listener, port = None, f":{of[1]:04X}"
    for name in ("tcp", "tcp6"):
        table = pathlib.Path(tables, name)
        if name == "tcp6" and not table.exists():
            continue
        for line in table.read_text().splitlines()[1:]:
            if port not in line:
                continue  # any user can fill the table, and parsing takes long
            fields = line.split()
            local, state = _parsed(fields[1]), fields[3]
            entry = (state, int(fields[7]), int(fields[9]))
            if state == _LISTEN:
                if local[1] == of[1] and (local[0] == of[0] or local[0].is_unspecified):
                    listener = entry
            elif local == of and _parsed(fields[2]) == to:
                return entry
    if listener is None:
        raise ConnectionResetError("the connection is gone")
    return listener


def _parsed(text: str) -> Address:
    """An address in words of four bytes in the machine's order, and a port: 0100007F:1F90."""
    words, port = text.split(":")
    raw = b"".join(struct.pack("=I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
    return _plain(ipaddress.ip_address(raw)), int(port, 16)


def _address(name: tuple[str, int]) -> Address:
    return _plain(ipaddress.ip_address(name[0].partition("%")[0])), name[1]


def _plain(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return getattr(ip, "ipv4_mapped", None) or ip


def on_loopback(url: str) -> bool:
    host = urllib.parse.urlsplit(url).hostname or ""
    try:
        return _plain(ipaddress.ip_address(host)).is_loopback
    except ValueError:
        return host == "localhost"


class _Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        try:
            check(self.sock)
        except OSError:
            self.close()
            raise


class _Handler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, request)


def opener(url: str) -> urllib.request.OpenerDirector:
    """Opens requests to a server; one on loopback is checked, and reached without a proxy."""
    if not on_loopback(url):
        return urllib.request.build_opener()
    return urllib.request.build_opener(_Handler, urllib.request.ProxyHandler({}))
