"""The supervisor's commands, each a function of the bridge. All ranks execute them; rank 0's value is the answer. One
that cannot be served raises and has changed nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import fields, publish, settings
from .errors import WorkerError

if TYPE_CHECKING:
    from .bridge import Bridge

Body = dict[str, Any]


def _publish(bridge: Bridge[Any], body: Body) -> Body:
    before = bridge.events.state["phase"]
    bridge.events.phase("publishing", version=body.get("version"), transport=body.get("transport", "full"))
    try:
        answer = publish.publish(bridge, body)
        bridge.version, bridge.served = answer["version"], bridge.step
        bridge.note_state()
        shown = {k: v for k, v in answer.items() if k not in ("handles",)}
        bridge.events.emit("weights", published=True, **shown)
    finally:
        bridge.sleep()
        bridge.events.phase(before if before in ("sync", "grant") else "between")
    return answer


def _synced(bridge: Bridge[Any], body: Body) -> Body:
    version = int(body["version"])
    if version != bridge.version:
        raise WorkerError(f"version {version} was acknowledged, the last one published is {bridge.version}",
                          ["Publish first; acknowledge the version that was published."])  # fmt: skip
    bridge.synced_version = version
    bridge.note_state()
    bridge.events.emit("weights", synced=True, version=version, step=bridge.step)
    if bridge.feed is not None:
        bridge.feed.sync = None
        bridge.feed.rollouts.report_version(version)
    return {"version": version, "step": bridge.step}


def _logprobs(bridge: Bridge[Any], body: Body) -> Body:
    answer = publish.logprobs(bridge, body)
    bridge.sleep()
    return {**answer, "step": bridge.step, "policy_version": bridge.version}


def _checkpoint(bridge: Bridge[Any], body: Body) -> Body:
    return {"checkpoint": bridge.save("asked"), "step": bridge.step}


def _update(bridge: Bridge[Any], body: Body) -> Body:
    apply = bridge.hooks.update or (lambda change: settings.update(bridge.block, change))
    new = apply(body)
    names = [n for n, _ in fields.changed(bridge.block, new)]
    bridge.use(new)
    bridge.events.emit("updated", settings=names)
    return {"changed": names}


def _grant(bridge: Bridge[Any], body: Body) -> Body:
    """For the batch that waits; one that comes late, when nothing waits any more, has no effect."""
    if bridge.feed is not None:
        bridge.feed.granted = bridge.feed.held is not None
    return {}


HANDLERS: dict[str, Callable[[Bridge[Any], Body], Body]] = {
    "publish": _publish, "synced": _synced, "logprobs": _logprobs, "checkpoint": _checkpoint, "update": _update,
    "grant": _grant,
}  # fmt: skip


def carry_out(bridge: Bridge[Any], name: str, body: Body) -> None:
    """Runs one command on this rank; rank 0 answers it."""
    answer: Body | None = None
    error: Exception | None = None
    try:
        answer = HANDLERS[name](bridge, body)
    except Exception as e:
        error = e
    if bridge.feed is not None:
        bridge.feed.answer(answer, error)
