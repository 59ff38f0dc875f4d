"""The worker process of an environment: answers the plugin process, which started it, over an inherited socket.

Messages are JSON-RPC 2.0, one a line. When the socket closes, the plugin process is gone, and so is this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, InvalidStateError
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from . import load, tools
from .away import away
from .base import Completion, Context, Environment, InfraFailure, Raised, Task, TimedOut, canceled
from .policy import Policy, PolicyError, author_turns, read, turns, whole
from .processes import Origin, ScoreFailed, Scorers
from .settings import build
from .slow import Slow
from .watch import Threads, Watch

INFRA, SETTINGS, FAILED = "infra", "settings", "failed"
EXPECTED = 100_000  # characters that are recorded of a right answer
DATA = 64 << 10  # bytes that are recorded of a task's data, as JSON
REPLACED = (CancelledError, InvalidStateError, TimeoutError)  # asyncio makes new ones of a thread's, without their line


class Server:
    """One environment and the connection on which it is called."""

    def __init__(self, cls: type[Environment], source: str = "", original: str = "", plugin: str = "") -> None:
        self.cls = cls
        self.code = (source, original, plugin)  # of processes that score; empty: there are none
        self.scorers: Scorers | None = None
        self.environment: Environment | None = None
        self.tasks: dict[int, Task] = {}
        self.numbers = 0
        self.running: dict[Any, asyncio.Task[None]] = {}
        self.asked: dict[str, asyncio.Future[Any]] = {}
        self.pool = Threads(cls.workers)
        self.loop: asyncio.AbstractEventLoop
        self.writer: asyncio.StreamWriter
        self.one_next: asyncio.Lock

    async def run(self, connection: socket.socket) -> None:
        """Answers until the connection ends."""
        self.loop, self.one_next = asyncio.get_running_loop(), asyncio.Lock()
        self.loop.set_default_executor(self.pool)  # of asyncio.to_thread in an author's code
        reader, self.writer = await asyncio.open_connection(sock=connection, limit=1 << 30)
        while line := await reader.readline():
            message = json.loads(line)
            if "method" not in message:
                self.take(message)
                continue
            if message["method"] == "cancel":
                task = self.running.get(message["params"]["id"])
                if task is not None:
                    task.cancel()
                continue
            number = message.get("id")
            answer = self.answer(number, message["method"], message.get("params") or {})
            self.running[number] = asyncio.create_task(answer)

    async def answer(self, number: Any, method: str, params: dict[str, Any]) -> None:
        """Calls a method and sends what it returns."""
        try:
            reply = {"result": await getattr(self, "on_" + method)(**params)}
        except asyncio.CancelledError:
            reply = {"error": {"code": 1, "message": "cancelled"}}
        except Exception as e:
            reply = refusal(e)
        finally:
            self.running.pop(number, None)
        if number is None:
            return
        try:
            self.send({"id": number, **reply})
        except (TypeError, ValueError) as e:  # JSON cannot hold it, and whoever asked would wait for ever
            self.send({"id": number, **refusal(TypeError(f"what {method} gave cannot be sent: {e}"))})

    def take(self, message: dict[str, Any]) -> None:
        """Takes an answer of the plugin process."""
        future = self.asked.pop(message["id"], None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(PolicyError(message["error"]["message"]))
        else:
            future.set_result(message["result"])

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Asks the plugin process."""
        self.numbers += 1
        number = f"w{self.numbers}"
        future = self.asked[number] = self.loop.create_future()
        self.send({"id": number, "method": method, "params": params})
        try:
            return await future
        finally:
            self.asked.pop(number, None)

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message; only the event loop's thread calls it."""
        self.writer.write(json.dumps({"jsonrpc": "2.0", **message}, allow_nan=False).encode() + b"\n")

    def tell(self, method: str, **params: Any) -> None:
        """Sends a notification, from any thread."""
        self.loop.call_soon_threadsafe(self.send, {"method": method, "params": params})

    async def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Calls a method of the author's: a coroutine in the event loop, anything else in a thread."""
        try:
            if inspect.iscoroutinefunction(method):
                return await method(*args)
            result = await self.loop.run_in_executor(self.pool, carried, method, *args)
            return await result if inspect.isawaitable(result) else result
        except asyncio.CancelledError as e:
            if canceled():
                raise
            raise Raised from e
        except RuntimeError as e:
            if isinstance(e.__cause__, StopIteration):  # of a coroutine, which turns it into an error without its line
                raise Raised from e.__cause__
            raise
        except Exception:
            raise
        except BaseException as e:  # of a coroutine: it would end this process
            raise Raised from e

    @property
    def env(self) -> Environment:
        assert self.environment is not None, "the environment is not open"
        return self.environment

    async def on_open(
        self, settings: dict[str, Any], name: str, folder: str, state: str, score_timeout: float = Context.score_timeout
    ) -> dict[str, Any]:
        """Makes the environment."""

        def log(level: str, message: str) -> None:
            self.tell("log", level=level, message=message)

        slow = Slow(log, lambda text: self.tell("waiting", text=text), score_timeout)
        context = Context(name, Path(folder), Path(state), log, score_timeout, slow=slow)
        try:
            made = build(load.settings_of(self.cls), settings)
        except Exception as e:
            raise SettingsRefused from e
        try:
            await self.open(context, made)
        except Exception as e:
            if away(e):
                raise SetupAway from e
            raise
        count = self.env.scoring_processes()
        if count and self.code[0]:
            self.scorers = Scorers(Origin(*self.code, name, folder, state, settings), count)
            self.env.context = replace(context, scorers=self.scorers)
        Watch(self.loop, score_timeout)
        return {}

    async def open(self, context: Context, settings: Any) -> None:
        """Makes the environment and sets it up."""
        environment = self.cls.__new__(self.cls)
        environment.context, environment.settings = context, settings
        environment.__init__()  # type: ignore[misc]
        await self.call(environment.setup)
        self.environment = environment

    async def on_next(self) -> dict[str, Any] | None:
        """The next task; null: there are no more."""
        async with self.one_next:
            method = self.env.next
            task = await (self.call(method) if inspect.iscoroutinefunction(method) else self.call(next_of, method))
        return None if task is None else self.keep(task) | self.record(task)

    async def on_skip(self, count: int) -> bool:
        """Leaves out the next tasks; true: there are no more."""
        own = getattr(self.env, "skip", None)
        async with self.one_next:
            if own is not None:
                await self.call(own, count)
                return False
            method = self.env.next
            for _ in range(count):
                task = await (self.call(method) if inspect.iscoroutinefunction(method) else self.call(next_of, method))
                if task is None:
                    return True
        return False

    async def on_held_out(self) -> list[dict[str, Any]]:
        """The tasks of the held-out set."""
        return [self.keep(task) for task in await self.call(self.env.held_out)]

    def record(self, task: Task) -> dict[str, Any]:
        """What is recorded of a task, so that its completions can be scored again."""
        if self.rolls_out:  # its scores come of a rollout
            return {}
        try:
            data = self.env.dump_data(task.data)
            parts: list[str] = []
            size = 0
            for part in json.JSONEncoder(allow_nan=False).iterencode(data):  # large data are not encoded whole
                parts.append(part)
                size += len(part)
                if size > DATA:
                    return {"no_record": f"its data has more than {DATA >> 10} KiB"}
            if json.loads("".join(parts)) == data:
                return {"data": data}
        except Exception:  # nothing of training depends on it
            pass
        return {
            "no_record": "its data is no JSON: Task.data has something else than texts, numbers, true, false, None, "
            "lists and dicts with texts as keys, and the environment has no dump_data for it"
        }

    async def on_restore(self, prompt: str, messages: list[dict[str, Any]], expected: str, data: Any,
                         tools: Any = None, chat_template_kwargs: Any = None) -> dict[str, Any]:  # fmt: skip
        """Makes a task again from what was recorded of it."""
        data = await self.call(self.env.load_data, data)
        return self.keep(Task(prompt, author_turns(messages), data, tools, chat_template_kwargs, expected or None))

    def keep(self, task: Any) -> dict[str, Any]:
        """Remembers a task until it is released; what the plugin process needs of it."""
        if not isinstance(task, Task):
            raise TypeError(f"expected a recipe_sdk.Task, got {type(task).__name__}")
        if not isinstance(task.prompt, str):
            raise TypeError(f"a task's prompt must be a text, got {task.prompt!r:.80}; messages takes a conversation")
        whole(task.prompt, "a task's prompt")
        messages = turns(task.messages)
        if not task.prompt and not messages and not hasattr(self.cls, "rollout"):  # which begins conversations itself
            raise ValueError("a task needs a prompt or messages: the model would be asked nothing")
        self.numbers += 1
        self.tasks[self.numbers] = task
        kept = {"task": self.numbers, "prompt": task.prompt, "messages": messages}
        if messages and not hasattr(self.cls, "rollout"):
            if task.tools:
                kept["tools"] = [dict(tool) for tool in task.tools]
            if task.chat_template_kwargs:
                kept["chat_template_kwargs"] = dict(task.chat_template_kwargs)
        if task.expected is not None:
            text = task.expected if isinstance(task.expected, str) else json.dumps(task.expected, default=str)
            kept["expected"] = text.encode("utf-8", "replace").decode()[:EXPECTED]
        return kept

    async def on_score(self, task: int, completion: dict[str, Any]) -> dict[str, Any]:
        """The score of one completion, with its metrics."""
        (outcome,) = await self.scores(self.tasks[task], [Completion(**completion)], 0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def on_score_group(self, task: int, completions: list[dict[str, Any]], step: int = 0) -> list[dict[str, Any]]:
        """The scores of the completions of one group, in order; where one has none, why."""
        outcomes = await self.scores(self.tasks[task], [Completion(**c) for c in completions], step)
        return [refusal(o) if isinstance(o, Exception) else o for o in outcomes]

    async def scores(self, task: Task, completions: list[Completion], step: int) -> list[dict[str, Any] | Exception]:
        """The scores of completions, or what went wrong with each."""
        group = getattr(self.env, "score_group", None)
        if group is not None:
            outcomes = await self.call(group, task, completions, step)
        else:
            outcomes = await asyncio.gather(*(self.score(task, c) for c in completions), return_exceptions=True)
        out: list[dict[str, Any] | Exception] = []
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                out.append(outcome)
                continue
            if isinstance(outcome, BaseException):
                raise outcome
            try:
                made = read(outcome, "score")
                out.append({"score": made.value, "metrics": made.metrics})
            except (TypeError, ValueError) as e:
                out.append(e)
        return out

    async def on_judge(self, **made: Any) -> dict[str, Any]:
        """The score of a rollout that the plugin process has made, by the environment's judge."""
        limit = self.env.context.score_timeout
        assert self.scorers is not None, "judge runs in processes of its own"
        try:
            with self.env.context.slow.call("the reward function", lambda: "a rollout") as started:
                found = read(
                    await self.scorers.call("judge", made, limit=limit, started=started), "the reward function"
                )
        except TimedOut:
            raise TimedOut(limit, "the reward of a rollout") from None
        return {"score": found.value, "metrics": found.metrics}

    async def score(self, task: Task, completion: Completion) -> Any:
        """Calls the environment's score, where it is to run, within its time."""
        limit = self.env.context.score_timeout
        watched = self.env.context.slow.call("score", lambda: f"the completion {completion.text[:200]!r}")
        try:
            with watched as started:
                if self.scorers is not None:
                    return await self.scorers.score(task, completion, limit, started)
                return await self.timed(limit, self.env.score, task, completion, started=started)
        except TimedOut:
            raise TimedOut(limit, f"score of the completion {completion.text[:200]!r}") from None

    async def timed(
        self, limit: float, method: Callable[..., Any], *args: Any, started: Callable[[], None] = lambda: None
    ) -> Any:
        """call within a time, which begins when a thread is free. A coroutine is canceled then, and a thread, which
        cannot be ended, is left to itself."""
        began = self.loop.create_future()

        def start() -> None:
            if not began.done():
                began.set_result(None)
                started()

        if inspect.iscoroutinefunction(method):
            start()
            timed = method
        else:

            def timed(*args: Any) -> Any:
                self.loop.call_soon_threadsafe(start)
                return method(*args)

        called = asyncio.ensure_future(self.call(timed, *args))
        try:
            await asyncio.wait([began, called], return_when=asyncio.FIRST_COMPLETED)
            if not (await asyncio.wait([called], timeout=limit or None))[0]:
                raise TimedOut(limit)
            return called.result()
        finally:
            began.cancel()
            called.cancel()

    async def on_rollout(self, task: int, rollout: int) -> list[dict[str, Any]]:
        """Makes one rollout; the scores of its conversations."""
        policy = Policy(lambda params: self.ask("answer", {"rollout": rollout, **params}), self.loop)
        return await self.play(self.tasks[task], policy)

    @property
    def rolls_out(self) -> bool:
        """Whether the environment has rollouts of several turns."""
        return load.rolls_out(self.cls)

    async def play(self, task: Task, policy: Policy) -> list[dict[str, Any]]:
        """Makes one rollout with a policy; the scores of its conversations."""
        own = getattr(self.env, "rollout", None)
        if own is not None:
            return policy.settle(await self.call(own, task, policy))
        return policy.settle(await tools.rollout(self.env, task, policy, self.call_named))

    async def call_named(self, method: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """call with arguments by name."""
        if inspect.iscoroutinefunction(method):
            return await self.call(partial(method, **arguments))
        return await self.call(lambda: method(**arguments))

    async def on_release(self, task: int) -> None:
        """The group of a task is done."""
        self.tasks.pop(task, None)

    async def on_close(self) -> None:
        """Releases what the environment holds."""
        if self.scorers is not None:
            await self.scorers.close()
        if self.environment is not None:
            await self.call(self.environment.close)


class SettingsRefused(Exception):
    """The settings class did not take the values."""


class SetupAway(Exception):
    """setup needs something that is away. That is no mistake of the author's: the block may be started again."""


def carried(method: Callable[..., Any], *args: Any) -> Any:
    """Calls a method in a thread. A future that gets a StopIteration is never done, what is no Exception ends the event
    loop, and of others a copy arrives: they are mistakes of the author's like any other exception."""
    try:
        return method(*args)
    except BaseException as e:
        if isinstance(e, Exception) and not isinstance(e, (StopIteration, *REPLACED)):
            raise
        raise Raised from e


def refusal(error: Exception) -> dict[str, Any]:
    """The reply to a call that failed."""
    kind = FAILED
    if isinstance(error, (InfraFailure, SetupAway)):
        kind = INFRA
    elif isinstance(error, SettingsRefused):
        kind = SETTINGS
    if isinstance(error, ScoreFailed):
        problem = error.problem
    else:
        told: BaseException = error
        while isinstance(told, (SettingsRefused, SetupAway, Raised)) and told.__cause__ is not None:
            told = told.__cause__
        problem = load.problem(told)
    return {"error": {"code": 1, "message": problem["message"], "data": {"kind": kind, **problem}}}


def next_of(method: Callable[[], Any]) -> Any:
    """Calls next in a thread; StopIteration, which no future can carry, says that there are no more tasks."""
    try:
        return method()
    except StopIteration:
        return None


def main(number: str, source: str, name: str, original: str = "") -> int:
    """Serves on the inherited socket of that number."""
    # A terminal's Ctrl-C goes to the whole group; the plugin process says when to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(number))
    try:
        cls = load.environment_of(load.module_of(source, original), name)
    except BaseException as e:
        problem = load.problem(e) | ({"kind": INFRA} if away(e) else {})
        hello: dict[str, Any] = {"error": problem}
    else:
        hello = {}
    connection.sendall(json.dumps({"jsonrpc": "2.0", "method": "hello", "params": hello}).encode() + b"\n")
    if hello:
        return 1
    with contextlib.suppress(KeyboardInterrupt, ConnectionError, BrokenPipeError):
        asyncio.run(Server(cls, source, original, name).run(connection))
    sys.stdout.flush()
    # Threads that are inside of a method of the author's would hold the process.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
