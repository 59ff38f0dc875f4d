"""A harness for verifiers: the loop of its `null` harness, in this process. A program of its own for each rollout, as
`null` starts one, would cost seconds of a core."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import aiohttp
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.null import NullHarness
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.runtimes import ProgramResult

__all__ = ["ChatHarness"]


class ChatHarness(NullHarness):
    """Lets the model answer, and call the task's tools, until it calls none."""

    SUPPORTS_TOOL_INTERCEPTION = False

    async def setup(self, runtime: Any) -> None:
        """Nothing is installed."""

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: Any,
        tool_interception_url: str | None = None,
    ) -> ProgramResult:
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(m) for m in prompt or ()]
        spec = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        async with contextlib.AsyncExitStack() as stack:
            client = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()))
            tools, dispatch, servers = await connect_mcp({"mcpServers": spec}, stack)
            body = {"model": ctx.model, "messages": messages, **({"tools": tools} if tools else {})}
            while True:
                async with client.post(
                    endpoint + "/chat/completions", json=body, headers={"Authorization": f"Bearer {secret}"}
                ) as response:
                    if response.status != 200:
                        return ProgramResult(exit_code=1, stdout="", stderr=await response.text())
                    answer = (await response.json())["choices"][0]["message"]
                messages.append(answer)
                if not answer.get("tool_calls"):
                    return ProgramResult(exit_code=0, stdout="", stderr="")
                for call in answer["tool_calls"]:
                    content = await self._call(servers, dispatch, call["function"])
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})

    async def _call(self, servers: Any, dispatch: Any, function: dict[str, Any]) -> Any:
        """The result of one call. What the model does wrong is told to it."""
        try:
            arguments = json.loads(function["arguments"] or "{}")
        except ValueError as e:
            return f"error: the call is no valid JSON ({e})"
        if not isinstance(arguments, dict):
            return f"error: the arguments must be a JSON object, got {type(arguments).__name__}"
        if function["name"] not in dispatch:
            return f"error: there is no tool {function['name']!r}; there are {', '.join(dispatch)}"
        return await call_mcp(servers, dispatch, function["name"], arguments)
