"""A taskset with a harness that begins its conversation anew, as one does that shortens long conversations."""

from letters import Letters
from recipe_chat import ChatHarness

__all__ = ["Forgetful", "Forgets"]


class Forgets(ChatHarness):
    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        for _ in range(2):
            result = await super().launch(ctx, trace, runtime, endpoint, secret, mcp_urls, data)
        return result


class Forgetful(Letters):
    pass
