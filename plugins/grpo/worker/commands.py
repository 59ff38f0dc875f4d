"""The supervisor's commands, each a function of the run. All ranks execute them; rank 0's value is the answer. One that
cannot be served raises and has changed nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recipe_sdk import fields
from recipe_sdk.errors import WorkerError

from . import config, metrics, publish, turns

if TYPE_CHECKING:
    from .train import Run


def _publish(run: Run, body: dict) -> dict:
    before = run.events.state["phase"]
    run.events.phase("publishing", version=body.get("version"), transport=body.get("transport", "full"))
    try:
        shared = run.broadcast if body.get("transport") == "nccl" else run.shared
        answer = publish.publish(run.config, run.policy, shared, run.ranks, body, run.step)
        run.version, run.served = answer["version"], run.step
        run.note_state()
        shown = {k: v for k, v in answer.items() if k not in ("handles",)}
        run.events.emit("weights", published=True, **shown)
    finally:
        run.vacate()
        run.events.phase(before if before in ("sync", "grant") else "between")
    return answer


def _synced(run: Run, body: dict) -> dict:
    version = int(body["version"])
    if version != run.version:
        raise WorkerError(f"version {version} was acknowledged, the last one published is {run.version}",
                          ["Publish first; acknowledge the version that was published."])  # fmt: skip
    run.synced_version = version
    run.note_state()
    run.events.emit("weights", synced=True, version=version, step=run.step)
    if run.feed is not None:
        run.feed.sync = None
        run.feed.rollouts.report_version(version)
    return {"version": version, "step": run.step}


def _logprobs(run: Run, body: dict) -> dict:
    raw = run.config.correction.logprobs_mode == "raw"
    answer = publish.logprobs(run.policy, run.ranks.device, body, raw)
    run.vacate()
    return {**answer, "step": run.step, "policy_version": run.version}


def _checkpoint(run: Run, body: dict) -> dict:
    return {"checkpoint": run.save("asked"), "step": run.step}


def _update(run: Run, body: dict) -> dict:
    new = config.update(run.config, body)
    if run.reference.source == "none" and config.source_of(new) != "none":
        raise fields.ConfigError(
            "this run was started without a reference policy; only a restart can turn a KL term on"
        )
    names = [n for n, _ in fields.changed(run.config, new)]
    run.use(new)
    if "kl.reward_coefficient" in names:  # what was adapted from the old one gives way
        run.stepper.memory.kl_reward = None
    if "entropy.coefficient" in names:
        run.stepper.memory.entropy = None
    run.events.emit("updated", settings=names)
    return {"changed": names}


def _grant(run: Run, body: dict) -> dict:
    """For the batch that waits; one that comes late, when nothing waits any more, is good for nothing."""
    if run.feed is not None:
        run.feed.granted = run.feed.held is not None
    return {}


def _sleep(run: Run, body: dict) -> dict:
    """Colocated inference wants the device: give back what training alone needs."""
    turns.vacate(run.stepper.optimizer, run.ranks.device, run.config.optimizer.offload)
    return {"memory": metrics.memory(run.ranks.device)}


HANDLERS = {
    "publish": _publish, "synced": _synced, "logprobs": _logprobs, "checkpoint": _checkpoint, "update": _update,
    "grant": _grant, "sleep": _sleep,
}  # fmt: skip


def carry_out(run: Run, name: str, body: dict) -> None:
    """Runs one command on this rank; rank 0 answers it."""
    answer: Any = None
    error: Exception | None = None
    try:
        answer = HANDLERS[name](run, body)
    except Exception as e:
        error = e
    if run.feed is not None:
        run.feed.answer(answer, error)
