"""slow-link.py A B MILLISECONDS: carries frames between two network cards of this machine, each so many milliseconds
late, until it is ended. Frames keep their offloads (checksums to be computed, segments to be cut), so that both sides
may be virtual cards. Needs root."""

from __future__ import annotations

import collections
import select
import socket
import sys
import time

SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 1, 15, 23
PROMISCUOUS = 1
ALL = 3  # ETH_P_ALL
LARGEST = 1 << 17  # a frame that is yet to be cut into segments, with its header
BUFFER = 32 << 20  # bytes that may wait in a socket


def card(name: str) -> socket.socket:
    """A socket that gets every frame that comes in at a card, and sends."""
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    s.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    s.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    index = socket.if_nametoindex(name)
    s.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, index.to_bytes(4, sys.byteorder) + bytes([PROMISCUOUS]) + bytes(11))
    s.bind((name, ALL))
    return s


def main(first: str, second: str, delay: float) -> None:
    """Carries frames between two cards, delay seconds late."""
    a, b = card(first), card(second)
    waiting: collections.deque[tuple[float, socket.socket, bytes]] = collections.deque()
    while True:
        rest = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for s in select.select([a, b], [], [], rest)[0]:
            frame = s.recv(LARGEST)
            waiting.append((time.monotonic() + delay, b if s is a else a, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, to, frame = waiting.popleft()
            try:
                to.send(frame)
            except OSError as e:  # lost, as a frame may be
                print(f"a frame of {len(frame)} bytes is lost: {e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]) / 1000)
