"""Tools of an environment: methods that the model may call, as text that Hermes and Qwen models are trained on.

The functions stand as JSON between <tools> tags in the system message, each call as JSON between <tool_call> tags,
each result between <tool_response> tags in a turn of the user. It is all in the text of messages, so that it does not
depend on the server's parser.
"""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .base import Completion, Environment, InfraFailure, Message, Raised, Score, Task
from .policy import Chat, Policy
from .policy import read as read_score

F = TypeVar("F", bound=Callable[..., Any])
Call = Callable[..., Awaitable[Any]]

_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)  # a server may stop at the end tag
_JSON = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


def tool(function: F) -> F:
    """Marks a method that the model may call. Its docstring and the types of its parameters describe it."""
    function.__recipe_tool__ = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True)
class Tool:
    """One tool as the model reads it."""

    name: str
    description: str
    parameters: dict[str, Any]
    function: Callable[..., Any]


def tools_of(environment: Environment | type[Environment]) -> list[Tool]:
    """The methods that are marked, in the order of their names."""
    out = []
    for name, function in inspect.getmembers(environment, callable):
        if getattr(function, "__recipe_tool__", False):
            out.append(Tool(name, inspect.cleandoc(function.__doc__ or ""), _parameters(function), function))
    return out


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The JSON schema of a function's arguments."""
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        kind = hints.get(name, str)
        properties[name] = {"type": _JSON.get(typing.get_origin(kind) or kind, "string")}
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def prompt(tools: Sequence[Tool]) -> str:
    """The text that shows tools to a model."""
    lines = "\n".join(
        json.dumps({"type": "function", "function": {"name": t.name, "description": t.description,
                                                     "parameters": t.parameters}}, ensure_ascii=False)
        for t in tools)  # fmt: skip
    return (
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        f"<tools>\n{lines}\n</tools>\n\nFor each function call, return a json object with function name and arguments "
        "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )


def calls(text: str) -> list[str]:
    """The calls in an answer, each as the text between its tags. The end tag of the last may be missing."""
    return [m.group(1) for m in _CALL.finditer(text)]


def read(call: str) -> tuple[str, dict[str, Any]]:
    """The name and the arguments of a call; a ValueError says what is wrong with it."""
    made = json.loads(call, parse_constant=_refuse)
    arguments = made.get("arguments") if isinstance(made, dict) else ()
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict) or not isinstance(made.get("name"), str) or not made["name"]:
        raise ValueError('a call is {"name": …, "arguments": {…}}')
    return made["name"], arguments


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def response(results: Sequence[str]) -> str:
    """What the model reads as the results of its calls, in their order."""
    return "\n".join(f"<tool_response>\n{r}\n</tool_response>" for r in results)


async def respond(tools: Sequence[Tool], text: str, call: Call) -> str | None:
    """Makes the calls in an answer; the text to give back, None when there are none. What the model does wrong is told
    to it; an InfraFailure is raised."""
    results = []
    for found in calls(text):
        try:
            results.append(str(await _one(tools, found, call)))
        except InfraFailure:
            raise
        except Exception as e:
            told = e.__cause__ if isinstance(e, Raised) and e.__cause__ else e
            results.append(f"Error: {type(told).__name__}: {told}")
    return response(results) if results else None


async def _one(tools: Sequence[Tool], text: str, call: Call) -> Any:
    name, arguments = read(text)
    named = {t.name: t for t in tools}
    if name not in named:
        raise ValueError(f"there is no function {name!r}; there are {', '.join(named)}")
    function = named[name].function
    inspect.signature(function).bind(**arguments)
    return await call(function, arguments)


async def use(chat: Chat, tools: Sequence[Tool], call: Call) -> Completion:
    """Lets the model answer, and call tools, until it calls none; its last answer."""
    while True:
        answer = await chat.answer()
        if answer.truncated or (said := await respond(tools, answer.text, call)) is None:
            return answer
        chat.say(said)


async def rollout(environment: Environment, task: Task, policy: Policy, call: Call) -> Score:
    """The rollout of an environment that has tools and none of its own: the score of the last answer."""
    tools = tools_of(environment)
    messages: list[Message] = [*task.messages] or [{"role": "user", "content": task.prompt}]
    if messages[0]["role"] == "system":
        messages[0] = {"role": "system", "content": f"{messages[0]['content']}\n\n{prompt(tools)}"}
    else:
        messages.insert(0, {"role": "system", "content": prompt(tools)})
    chat = policy.chat(messages)
    answer = await use(chat, tools, call)
    return read_score(await call(environment.score, {"task": task, "completion": answer}), "score")
