"""Starts an SGLang server with the key before every route: python -m recipe_serve ARGUMENTS of sglang.launch_server.

SGLang's own --api-key would stand in the process list and in its log, and leaves /health and /metrics open.
"""

import os
import sys


async def unload_at_once(_registry, _adapter):
    """Replaces SGLang's wait for the end of an adapter's requests, by a count that is wrong after requests with n > 1.

    The unload would wait forever (SGLang's issue 36894). recipe unloads an adapter only when the server has no request.
    """


def main():
    key = os.environ.pop("RECIPE_SGLANG_KEY", "")
    from recipe_sdk.guard import Guard
    from sglang import launch_server  # noqa: F401  (also silences warnings of what it imports)
    from sglang.srt.entrypoints.http_server import app
    from sglang.srt.lora.lora_registry import LoRARegistry
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    LoRARegistry.wait_for_unload = unload_at_once
    app.add_middleware(Guard, key=key)
    arguments = prepare_server_args(sys.argv[1:])
    try:
        launch_server.run_server(arguments)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main()
