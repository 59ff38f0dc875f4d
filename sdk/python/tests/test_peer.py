"""Who owns the other end of a connection on loopback, as recipe_sdk.peer finds out."""

from __future__ import annotations

import os
import socket
import urllib.error
import urllib.request

import pytest

from recipe_sdk import peer

STRANGER = 65534

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/net"), reason="only Linux has tables of sockets")


@pytest.fixture(params=["pending", "accepted"])
def theirs(request):
    """The port of a server of another user, which accepts connections or leaves them waiting."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    ready, listening = os.pipe()
    done, end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(end)
            os.setresuid(STRANGER, STRANGER, STRANGER)
            server = socket.create_server(("127.0.0.1", 0))
            server.setblocking(request.param == "accepted")
            os.write(listening, str(server.getsockname()[1]).encode())
            kept = []
            if request.param == "accepted":
                server.settimeout(30)
                kept.append(server.accept())
            os.read(done, 1)
        finally:
            os._exit(0)
    os.close(done)
    port = int(os.read(ready, 16))
    yield port
    os.close(end)
    os.waitpid(child, 0)
    for fd in (ready, listening):
        os.close(fd)


def test_a_server_of_another_user_is_refused(theirs):
    refused = pytest.raises(peer.StrangerError, match=f"belongs to user {STRANGER}")
    with socket.create_connection(("127.0.0.1", theirs), timeout=30) as connection, refused:
        peer.check(connection)


def test_no_request_is_sent_to_another_user(theirs):
    url = f"http://127.0.0.1:{theirs}/batch"
    with pytest.raises(urllib.error.URLError) as caught:
        peer.opener(url).open(urllib.request.Request(url, headers={"Authorization": "Bearer secret"}), timeout=30)
    assert isinstance(caught.value.reason, peer.StrangerError)


@pytest.mark.parametrize("family, host", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_own_servers_pass(family, host):
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError as e:
        pytest.skip(f"this machine has no {host}: {e}")
    with server, socket.create_connection(server.getsockname()[:2], timeout=30) as connection:
        peer.check(connection)  # it waits to be accepted
        accepted, _ = server.accept()
        with accepted:
            peer.check(connection)
            peer.check(accepted)


def test_a_closed_server_is_no_answer():
    server = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(server.getsockname(), timeout=30) as connection:
        server.close()
        with pytest.raises(OSError):
            peer.check(connection)


def test_unreadable_tables_are_no_answer(tmp_path):
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname(), timeout=30) as connection, pytest.raises(OSError):
        peer.check(connection, tables=str(tmp_path))


@pytest.mark.parametrize(
    "url, loopback",
    [
        ("http://127.0.0.1:8000/t/x", True),
        ("http://[::1]:8000", True),
        ("http://localhost:8000", True),
        ("http://10.0.0.1:8000", False),
        ("https://api.example.com", False),
    ],
)
def test_which_servers_are_checked(url, loopback):
    assert peer.on_loopback(url) is loopback
