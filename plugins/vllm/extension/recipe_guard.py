"""The key on every path of a vLLM server, through --middleware.

vLLM's own check covers /v1 and a few other prefixes; its development routes (/collective_rpc, /sleep, /pause,
/reset_prefix_cache, …) reach weights and files.
"""

import os

from recipe_sdk import guard


class Guard(guard.Guard):
    """Demands the key in RECIPE_VLLM_KEY."""

    def __init__(self, app):
        super().__init__(app, os.environ.get("RECIPE_VLLM_KEY", ""))
