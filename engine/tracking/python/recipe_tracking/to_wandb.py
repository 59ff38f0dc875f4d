"""Weights & Biases."""

import wandb

from .when import seconds


class Run:
    """One run, by its id. Its _step is the number of the event, so a server ignores what it has already; each block's
    metrics are shown over the block's own step."""

    def __init__(self, settings):
        self.run = wandb.init(
            id=settings["run_id"],
            resume="allow",
            project=settings["project"],
            entity=settings["entity"] or None,
            group=settings["group"],
            name=settings["name"],
            tags=settings["tags"] or None,
            mode=settings["mode"] or None,
            config=settings["config"],
            dir=settings["dir"],
            # What W&B would report of this process is about a process that only passes events on.
            settings=wandb.Settings(
                console="off", silent=True, x_disable_stats=True, disable_code=True, disable_git=True, init_timeout=120
            ),
        )
        self.defined = set()

    def log(self, prefix, metrics, event):
        step = f"{prefix}/step"
        if prefix not in self.defined and "step" in event:
            self.defined.add(prefix)
            self.run.define_metric(step, hidden=True)
            self.run.define_metric(f"{prefix}/*", step_metric=step)
        if "step" in event:
            metrics = {**metrics, step: event["step"]}
        self._log(metrics, event)

    def table(self, name, columns, rows, event):
        self._log({name: wandb.Table(columns=columns, data=rows)}, event)

    def _log(self, values, event):
        # A table is logged after events that are newer than its last sample, and _step only grows.
        step = max(event["seq"], self.run.step)
        self.run.log({**values, "_timestamp": seconds(event)}, step=step, commit=True)

    def flush(self):
        """log has given everything to W&B's own process, which outlives this one until it is written."""

    def close(self):
        self.run.finish()
