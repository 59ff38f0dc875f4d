"""Trackio."""

import os
import time

FLUSH_SECONDS = 60


class Run:
    """One run, by its name in its project."""

    def __init__(self, settings):
        if not settings["space_id"]:
            os.environ["TRACKIO_DIR"] = settings["dir"]  # read when trackio is imported
        import trackio

        self.trackio = trackio
        self.run = trackio.init(
            project=settings["project"],
            name=settings["name"],
            group=settings["group"],
            space_id=settings["space_id"] or None,
            config=settings["config"],
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, prefix, metrics, event):
        self.run.log(metrics, step=event.get("step"))

    def table(self, name, columns, rows, event):
        self.run.log({name: self.trackio.Table(columns=columns, data=rows)}, step=event.get("version", 0))

    def flush(self):
        """Waits until Trackio's thread has stored what was logged."""
        deadline = time.monotonic() + FLUSH_SECONDS
        while self.run._queued_logs or self.run._sending_batch:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Trackio has not stored the metrics within {FLUSH_SECONDS} s")
            time.sleep(0.05)

    def close(self):
        self.trackio.finish()
