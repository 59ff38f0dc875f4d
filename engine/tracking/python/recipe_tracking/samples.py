"""Samples become a table when there are enough of them: trackers store each table as a file of its own."""

import json
import os
import time

COLUMNS = ["time", "version", "score", "prompt", "completion"]
TABLE_SECONDS = 600


class Samples:
    """Samples that are in no table yet. They are also in a file, for the process that continues after this one."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "samples.jsonl")
        self.waiting = []
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.waiting = [json.loads(line) for line in file if line.endswith("\n")]
        self.file = open(self.path, "w", buffering=1)
        for event in self.waiting:
            self.file.write(json.dumps(event) + "\n")
        self.since = time.monotonic()

    def add(self, event):
        if not self.waiting:
            self.since = time.monotonic()
        self.waiting.append(event)
        self.file.write(json.dumps(event) + "\n")

    def log_due(self, run):
        if self.waiting and time.monotonic() - self.since >= TABLE_SECONDS:
            self.log(run)

    def log(self, run):
        tables = {}
        for event in self.waiting:
            tables.setdefault(event.get("environment") or event["address"], []).append(event)
        for environment, events in tables.items():
            # A field that is zero is left out of an event.
            rows = [[e["time"], e.get("version", 0), e.get("score", 0), e.get("prompt", ""), e.get("completion", "")]
                    for e in events]
            run.table(f"samples/{environment}", COLUMNS, rows, events[-1])
        run.flush()
        self.waiting = []
        self.file.seek(0)
        self.file.truncate()
