"""The model endpoint of verifiers' agents: each trace of theirs becomes one conversation with the policy, whose tokens
the plugin process holds."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

from aiohttp import web
from recipe_sdk import Completion, Policy, Score, peer
from recipe_sdk.environment import tools as text_tools
from recipe_sdk.environment.policy import Chat
from verifiers.v1.clients.client import SESSION_ID_HEADER
from verifiers.v1.dialects import ChatDialect


class Unsupported(Exception):
    """A program asks for what one conversation with the policy cannot give."""


class Run:
    """One rollout: the conversations of its traces."""

    def __init__(self, policy: Policy, alone: bool) -> None:
        """alone: the environment has one agent, which needs no name."""
        self.policy, self.alone = policy, alone
        self.conversations: dict[str, Conversation] = {}
        self.problem: Exception | None = None

    def minted(self, trace: Any) -> None:
        """An agent begins a trace. Where it has several, as in best-of-n, the later ones have a number in the name."""
        seat = trace.agent.name
        earlier = sum(c.seat == seat for c in self.conversations.values())
        name = f"{seat}-{earlier + 1}" if earlier else "" if self.alone else seat
        self.conversations[trace.id] = Conversation(self.policy, trace, seat, name)

    def discarded(self, trace: Any) -> None:
        """verifiers begins an agent's trace again; what was sampled for it cannot be taken back."""
        self.problem = Unsupported("an agent's own retries are not supported; rollout_attempts begins rollouts again")

    def score(self) -> None:
        """Takes the rewards of the traces that the policy has sampled."""
        for c in self.conversations.values():
            if c.chat is not None:
                c.chat.score(Score(c.trace.reward, _metrics(c.trace)))


def _metrics(trace: Any) -> dict[str, float]:
    """The taskset's metrics, and what each of its reward functions returned, before it is weighted."""
    rewards = {f"reward/{name}": r.score for name, r in trace.rewards.items() if r is not None}
    return rewards | {name: v for name, v in trace.metrics.items() if v is not None}


class Conversation:
    """One trace: what its program has sent, and the chat in which the policy answers."""

    def __init__(self, policy: Policy, trace: Any, seat: str, name: str) -> None:
        self.policy, self.trace, self.seat, self.name = policy, trace, seat, name
        self.chat: Chat | None = None
        self._known: list[dict[str, Any]] = []
        self._tools: Any = None
        self._one = asyncio.Lock()

    async def answer(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """The policy's answer to a request of chat completions, as a response. None: the conversation is full."""
        async with self._one:
            messages = [_plain(m) for m in body["messages"]]
            new = messages[len(self._known) :]
            kept = messages[: len(self._known)] == self._known
            if not kept or self.chat is not None and body.get("tools") != self._tools:
                raise Unsupported(
                    f"the program of agent {self.seat!r} has changed what was said before (compaction, a subagent); "
                    "only programs that add to the conversation can be trained"
                )
            if self.chat is None:
                if not self.trace.agent.trainable:
                    raise Unsupported(
                        f"the agent {self.seat!r} is not trained, and has no model of its own: give it one by "
                        f"env_config = {{ {self.seat} = {{ client = …, model = … }} }}"
                    )
                self._tools = body.get("tools")
                self.chat = self.policy.chat(_with_tools(_turns(new), self._tools), self.name)
            else:
                for turn in _turns(new):
                    self.chat.say(turn["content"], turn["role"])
            limit = body.get("max_completion_tokens") or body.get("max_tokens") or 0
            stop = body.get("stop")
            got = await self.chat.answer(max_tokens=limit, stop=[stop] if isinstance(stop, str) else stop)
            if not got.tokens and got.finish == "length":
                return None
            message, reason = _message(got, bool(self._tools), f"{self.name}{len(self.chat.completions)}")
            self._known = [*messages, _plain(message)]
            return {
                "id": self.trace.id, "object": "chat.completion", "created": int(time.time()), "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            }  # fmt: skip


class Endpoint:
    """An HTTP server on loopback with chat completions, for processes of this user. The header that verifiers sends
    says of which trace a request is."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._runner: web.AppRunner
        self._socket: socket.socket
        self._accepting: asyncio.Task[None]

    async def start(self) -> str:
        """Begins to listen; its base URL."""
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._socket.setblocking(False)
        self._accepting = asyncio.create_task(self._accept())
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    async def _accept(self) -> None:
        """Connections of other users are closed at once: they would be read, and keep files of this process open."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError:  # too many open files: some are closed soon
                await asyncio.sleep(0.1)
                continue
            try:
                peer.check(connection)
                await loop.connect_accepted_socket(self._runner.server, connection)
            except OSError:
                connection.close()

    async def stop(self) -> None:
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        self._socket.close()
        await self._runner.cleanup()

    async def _complete(self, request: web.Request) -> web.Response:
        trace = request.headers.get(SESSION_ID_HEADER, "")
        run = next((r for r in self.runs if trace in r.conversations), None)
        if run is None:
            return _refuse("this trace is not of a rollout that is under way")
        conversation, body = run.conversations[trace], await request.json()
        try:
            answer = await conversation.answer(body)
        except Exception as e:
            run.problem = run.problem or e
            return _refuse(str(e))
        if answer is None:
            conversation.trace.stop("policy_limit")  # verifiers ends the trace and scores what there is
            return _refuse("the conversation has reached max_turns or the longest sequence")
        if body.get("stream"):
            return web.Response(body=b"".join(ChatDialect().stream_events(answer)), content_type="text/event-stream")
        return web.json_response(answer)


def _refuse(text: str) -> web.Response:
    """A status that programs do not try again."""
    return web.json_response({"error": {"message": text}}, status=400)


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message by what counts in it, so that it is equal however a program writes it."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        if any(part.get("type") != "text" for part in content):
            raise Unsupported("a message holds something else than text, which the policy cannot read")
        content = "".join(part["text"] for part in content)
    calls = [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]
    return {"role": message["role"], "content": content, "calls": calls}


def _turns(messages: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Messages as turns of text: the results of tools that follow each other are one turn of the user."""
    turns: list[dict[str, str]] = []
    previous = ""
    for m in messages:
        role, content = m["role"], m["content"]
        if role == "tool":
            content = f"<tool_response>\n{content}\n</tool_response>"
            if previous == "tool":
                turns[-1]["content"] += "\n" + content
            else:
                turns.append({"role": "user", "content": content})
        else:
            turns.append({"role": "system" if role == "developer" else role, "content": content})
        previous = role
    return turns


def _with_tools(turns: list[dict[str, str]], tools: Any) -> list[dict[str, str]]:
    """Turns whose system message shows the tools."""
    if not tools:
        return turns
    functions = [t["function"] for t in tools]
    shown = text_tools.prompt(
        [text_tools.Tool(f["name"], f.get("description", ""), f["parameters"], _never) for f in functions]
    )
    if turns and turns[0]["role"] == "system":
        return [{"role": "system", "content": f"{turns[0]['content']}\n\n{shown}"}, *turns[1:]]
    return [{"role": "system", "content": shown}, *turns]


def _never(**_: Any) -> None:
    """verifiers calls the tools."""


def _message(got: Completion, has_tools: bool, name: str) -> tuple[dict[str, Any], str]:
    """What the policy said as a message of the API, and why it ended. Calls between tags become tool calls."""
    calls: list[dict[str, Any]] = []
    text = got.text
    for i, found in enumerate(text_tools.calls(text) if has_tools and not got.truncated else ()):
        function, arguments = "", found  # what cannot be read is told to the model by the program
        try:
            made = json.loads(found)
            function, arguments = str(made["name"]), json.dumps(made.get("arguments", {}))
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        calls.append(
            {"id": f"call-{name}-{i}", "type": "function", "function": {"name": function, "arguments": arguments}}
        )
    if not calls:
        return {"role": "assistant", "content": text}, got.finish
    said = text.partition("<tool_call>")[0].rstrip()
    return {"role": "assistant", "content": said, "tool_calls": calls}, "tool_calls"
