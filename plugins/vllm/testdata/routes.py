"""Prints what vLLM's real application answers on each of its routes, as JSON: {name: [[method, path, key, status], …]}.

Arguments: the key, the paths to ask with it, and {name: arguments of the server after `serve`} as JSON. Each
application is built as vLLM builds it, without an engine behind it.
"""

import json
import sys

from starlette.routing import Mount, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

KEY, SERVED, SERVERS = sys.argv[1:]
keys = {
    "none": {},
    "wrong": {"Authorization": "Bearer " + KEY[:-1] + "~"},
    "basic": {"Authorization": "Basic " + KEY},
    "empty": {"Authorization": "Bearer "},
    "right": {"Authorization": "Bearer " + KEY},
}


def leaves(routes, prefix=""):
    for route in routes:
        if isinstance(route, Mount) and route.routes:
            yield from leaves(route.routes, prefix + route.path)
        elif isinstance(route, WebSocketRoute):
            yield "WEBSOCKET", prefix + route.path
        elif hasattr(route, "path"):
            for method in getattr(route, "methods", None) or ["GET"]:
                yield method, prefix + route.path
        else:  # a router that was included as a whole
            yield from leaves(getattr(route, "routes", []), prefix)


def ask(client, method, path, headers):
    if method != "WEBSOCKET":
        return client.request(method, path, headers=headers, content=b"{}").status_code
    try:
        with client.websocket_connect(path, headers=headers):
            return 101
    except WebSocketDisconnect as e:
        return 401 if e.code == 1008 else e.code


def rows(arguments):
    app = build_app(make_arg_parser(FlexibleArgumentParser()).parse_args(arguments), ("generate",))
    client = TestClient(app, raise_server_exceptions=False)
    table = set()
    for method, path in {*leaves(app.routes), ("GET", "/"), ("GET", "/nothing"), ("POST", "/v1/nothing")}:
        path = path.replace("{", "").replace("}", "") or "/"
        table.add((method, path))
        if method != "WEBSOCKET":
            table.add(("OPTIONS", path))
    for method, path in sorted(table):
        for name, headers in keys.items():
            # With the key a handler runs, and there is no engine; those that the fake has are enough.
            if name != "right" or path in SERVED.split(","):
                yield [method, path, name, ask(client, method, path, headers)]


print("\n" + json.dumps({name: list(rows(arguments)) for name, arguments in json.loads(SERVERS).items()}))
