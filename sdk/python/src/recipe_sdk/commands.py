"""The supervisor's commands, each a function of the bridge. All ranks execute them; rank 0's value is the answer. One
that cannot be served raises and has changed nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import fields, publish, settings
from .errors import DiskFull, WorkerError

if TYPE_CHECKING:
    from .bridge import Bridge

Body = dict[str, Any]


def _publish(bridge: Bridge[Any], body: Body) -> Body:
    before = bridge.events.state["phase"]
    bridge.events.phase("publishing", version=body.get("version"), transport=body.get("transport"))
    try:
        answer = publish.publish(bridge, body)
        bridge.published = (answer["version"], bridge.step)
        shown = {k: v for k, v in answer.items() if k not in ("handles",)}
        bridge.events.emit("weights", published=True, **shown)
    except DiskFull:  # it is asked for again, until there is room
        if bridge.feed is not None:
            bridge.feed.postpone()
        raise
    finally:
        bridge.sleep()
        bridge.events.phase(before if before in ("sync", "turn", "settling") else "between")
    return answer


def _synced(bridge: Bridge[Any], body: Body) -> Body:
    """The supervisor owns the policy version: it says which one inference serves now."""
    version = int(body["version"])
    news = bridge.ahead or version != bridge.version
    bridge.ahead = False
    bridge.adopt(version)
    if news:
        bridge.events.emit("weights", synced=True, version=version, step=bridge.step)
    bridge.device_shared = bool(body["shared"])
    bridge.note_state()
    if bridge.feed is not None:
        bridge.feed.synced(bridge.device_shared)
    return {}


def _taken(bridge: Bridge[Any], body: Body) -> Body:
    """The weights that were offered have been read: training goes on, and leaves them alone until `synced`. The
    trajectory API may not know the version until then, so max_staleness is applied here."""
    version, limit = int(body["version"]), body.get("max_staleness")
    bridge.adopt(version)
    bridge.ahead = True
    bridge.note_state()
    if bridge.feed is not None:
        bridge.feed.taken(None if limit is None else version - limit)
    return {}


def _turn(bridge: Bridge[Any], body: Body) -> Body:
    """The batch that waits may use the device."""
    bridge.device_shared = bool(body["shared"])
    if bridge.feed is not None:
        bridge.feed.turn(bridge.device_shared)
    return {}


def _logprobs(bridge: Bridge[Any], body: Body) -> Body:
    answer = publish.logprobs(bridge, body)
    bridge.sleep()
    return {**answer, "step": bridge.step, "policy_version": bridge.version}


def _tokenize(bridge: Bridge[Any], body: Body) -> Body:
    return {"token_ids": publish.tokenize(bridge.block.model.path, str(body["text"]))}


def _checkpoint(bridge: Bridge[Any], body: Body) -> Body:
    return {"checkpoint": bridge.save("asked"), "step": bridge.step}


def _pause(bridge: Bridge[Any], body: Body) -> Body:
    """No step begins until the run is resumed."""
    if bridge.feed is not None:
        bridge.feed.paused = bool(body["paused"])
    return {}


def _update(bridge: Bridge[Any], body: Body) -> Body:
    apply = bridge.hooks.update or (lambda change: settings.update(bridge.block, change))
    new = apply(body)
    names = [n for n, _ in fields.changed(bridge.block, new)]
    bridge.use(new)
    bridge.events.emit("updated", settings=names)
    return {"changed": names}


HANDLERS: dict[str, Callable[[Bridge[Any], Body], Body]] = {
    "publish": _publish, "logprobs": _logprobs, "tokenize": _tokenize, "checkpoint": _checkpoint, "pause": _pause,
    "update": _update, "taken": _taken, "synced": _synced, "turn": _turn,
}  # fmt: skip


def carry_out(bridge: Bridge[Any], name: str, body: Body) -> None:
    """Runs one command on this rank; rank 0 answers it."""
    if name == "refused":
        text = f"the supervisor could not do what {body['name']} asked for: {body['message']}"
        raise WorkerError(text, [], "supervisor")
    answer: Body | None = None
    error: Exception | None = None
    try:
        answer = HANDLERS[name](bridge, body)
    except Exception as e:
        error = e
    if bridge.feed is not None:
        bridge.feed.answer(answer, error)
