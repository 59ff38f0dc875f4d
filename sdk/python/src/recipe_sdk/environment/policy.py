"""What a rollout of an environment's own talks to: the policy, in one conversation for each agent.

The plugin process holds the tokens. What the model has said stays as it was sampled, and only what stands between two
answers is turned into tokens, by the server's chat template: the tokens that were sampled are those that are trained.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from .base import Completion, Message, Score, Task

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

#: Largest score and advantage, which the trajectory API refuses beyond.
LARGEST = 1e15


class PolicyError(Exception):
    """The policy cannot answer: the server has refused the request. Leave it alone: the group is then left out."""


class Chat:
    """One agent's conversation with the policy."""

    def __init__(self, ask: Ask, loop: asyncio.AbstractEventLoop, agent: str, messages: Sequence[Message], prompt: str):
        self.agent = agent
        self.messages: list[Message] = [*messages] or ([{"role": "user", "content": prompt}] if prompt else [])
        """The conversation so far."""
        self.completions: list[Completion] = []
        """The model's answers, in their order."""
        self.reward: float | None = None
        self.metrics: Mapping[str, float] = {}
        self.advantages: Sequence[Sequence[float]] | None = None
        self._ask, self._loop, self._prompt = ask, loop, prompt
        self._said: list[Message] = [*messages]

    def say(self, text: str, role: str = "user") -> None:
        """What the model reads next: an observation, another player's move, the result of a tool."""
        self._said.append({"role": role, "content": text})
        self.messages.append(self._said[-1])

    async def answer(self, *, max_tokens: int = 0, stop: Sequence[str] | None = None) -> Completion:
        """Lets the model answer. Where the conversation has no room for an answer, or has had max_turns of them, the
        completion is empty and its finish is "length"."""
        said, self._said = self._said, []
        got = Completion(**await self._ask({
            "agent": self.agent, "prompt": "" if self.completions else self._prompt,
            "messages": turns(said),
            "max_tokens": max_tokens, "stop": None if stop is None else list(stop),
        }))  # fmt: skip
        self.completions.append(got)
        self.messages.append({"role": "assistant", "content": got.text})
        return got

    def answer_now(self, *, max_tokens: int = 0, stop: Sequence[str] | None = None) -> Completion:
        """answer for a rollout that is not asynchronous: it waits."""
        if _runs_here(self._loop):  # it would wait for itself
            raise RuntimeError("answer_now waits, which an asynchronous method must not: write await chat.answer()")
        coroutine = self.answer(max_tokens=max_tokens, stop=stop)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def score(self, reward: float | Score, advantages: Sequence[Sequence[float]] | None = None) -> None:
        """How good the conversation was; higher is better. advantages, one number for each token of each answer, train
        the tokens instead of what the trainer makes of the rewards."""
        scored = read(reward, "rollout")
        self.reward, self.metrics = scored.value, scored.metrics
        self.advantages = advantages and [[number(a, "rollout") for a in answer] for answer in advantages]


class Policy:
    """The policy, for one rollout."""

    def __init__(self, ask: Ask, loop: asyncio.AbstractEventLoop) -> None:
        self._ask, self._loop = ask, loop
        self.chats: dict[str, Chat] = {}

    def chat(self, start: Task | str | Sequence[Message], agent: str = "") -> Chat:
        """Begins the conversation of an agent, of which each has one in a rollout. A task's prompt is sent as it is and
        allows one answer; start with messages, or with a text, which becomes the user's message, for more."""
        if agent in self.chats:
            raise ValueError(f"agent {agent!r} has a conversation in this rollout; go on with it")
        prompt = ""
        messages: Sequence[Message]
        if isinstance(start, Task):
            whole(start.prompt, "a task's prompt")
            prompt, messages = start.prompt, start.messages
        else:
            messages = [{"role": "user", "content": start}] if isinstance(start, str) else start
        self.chats[agent] = made = Chat(self._ask, self._loop, agent, messages, prompt)
        return made

    def settle(self, returned: object) -> list[dict[str, Any]]:
        """The scores of all conversations, from what rollout returned: a number or a Score is that of those without
        one, a dict has one for each agent."""
        if isinstance(returned, dict):
            for agent, reward in returned.items():
                if agent not in self.chats:
                    known = ", ".join(map(repr, self.chats)) or "none has begun"
                    raise ValueError(f"rollout returned a score of {agent!r}, who has no conversation in it: {known}")
                self.chats[agent].score(reward)
        elif returned is not None:
            for chat in self.chats.values():
                if chat.reward is None:
                    chat.score(read(returned, "rollout"))
        return [{"agent": c.agent, "score": c.reward, "metrics": dict(c.metrics), "advantages": c.advantages}
                for c in self.chats.values()]  # fmt: skip


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this thread is the event loop's."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def read(value: Any, method: str) -> Score:
    """What a method of the author's returned as a score: a number, or a Score."""
    if not isinstance(value, Score):
        return Score(number(value, method))
    if not isinstance(value.metrics, Mapping):
        raise TypeError(f'{method} returned a Score with the metrics {value.metrics!r}; expected {{"name": number}}')
    metrics = {str(k): number(v, f"{method} as the metric {k!r}") for k, v in value.metrics.items()}
    return Score(number(value.value, method), metrics)


def number(value: Any, method: str) -> float:
    """What a method of the author's returned as a number."""
    try:
        made = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{method} returned {value!r}, which is no number") from None
    except OverflowError:
        raise ValueError(f"{method} returned an integer that is too large for a number of 64 bits") from None
    if not math.isfinite(made):
        raise ValueError(f"{method} returned {made}, which is no finite number")
    if abs(made) > LARGEST:
        raise ValueError(
            f"{method} returned {made:.0e}; expected a number between -{LARGEST:g} and {LARGEST:g}: trainers add up "
            "squares of scores in single precision"
        )
    return made


def whole(text: str, what: str) -> None:
    """Refuses a text with half a character: it has no UTF-8, so the model would read another one in its place."""
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise ValueError(
            f"{what} has {text[e.start]!r} at position {e.start}, which is half of a character (a surrogate) and "
            'cannot be sent; read files with encoding="utf-8", without errors="surrogateescape"'
        ) from None


def turns(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages of the author's as they are sent. What cannot be sent is an error: the model would read another text."""
    out = []
    for n, message in enumerate(messages):
        where = f"messages[{n}]"
        if not isinstance(message, Mapping):
            raise TypeError(f'{where} must be like {{"role": "user", "content": "…"}}, got {message!r:.80}')
        if message.get("function_call"):
            raise ValueError(f"{where} has function_call, which is no longer sent: write it as tool_calls")
        if message.get("tool_calls") and message.get("content") is None:
            message = {**message, "content": ""}
        for key in ("role", "content"):
            if key not in message:
                raise TypeError(f"{where} has no {key}; it has {', '.join(map(str, message)) or 'nothing'}")
            if not isinstance(message[key], str) or (key == "role" and not message[key]):
                raise TypeError(f"{where} must have a text as its {key}, got {message[key]!r:.80}")
            whole(message[key], f"{where}'s {key}")
        turn = {"role": message["role"], "content": message["content"]}
        if calls := message.get("tool_calls"):
            turn["tool_calls"] = _calls(calls, where)
        for key in ("tool_call_id", "name"):
            if value := message.get(key):
                if not isinstance(value, str):
                    raise TypeError(f"{where} must have a text as its {key}, got {value!r:.80}")
                whole(value, f"{where}'s {key}")
                turn[key] = value
        out.append(turn)
    return out


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    """Calls of tools in the form of OpenAI's API. Rows for TRL have arguments as objects, and no ids."""
    form = '{"function": {"name": "…", "arguments": {…}}}'
    if isinstance(calls, (str, Mapping)) or not isinstance(calls, Sequence):
        raise TypeError(f"{where} must have a list of {form} as its tool_calls, got {calls!r:.80}")
    out = []
    for n, call in enumerate(calls):
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise TypeError(f"{where} must have a list of {form} as its tool_calls, got {call!r:.80}")
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps({} if arguments is None else arguments)
        out.append({"id": str(call.get("id") or f"call_{n}"), "type": "function",
                    "function": {"name": function["name"], "arguments": text}})  # fmt: skip
    return out


def author_turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Recorded messages as rows for TRL have them, and so what scores: arguments of calls are objects."""
    out = []
    for message in messages:
        turn = dict(message)
        if calls := turn.get("tool_calls"):
            turn["tool_calls"] = [{**c, "function": {**c["function"], "arguments": _object(c["function"]["arguments"])}}
                                  for c in calls]  # fmt: skip
        out.append(turn)
    return out


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
