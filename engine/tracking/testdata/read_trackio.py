"""Prints what Trackio reads from a folder: the runs, their metrics and the tables of samples."""

import json
import os
import sys

os.environ["TRACKIO_DIR"] = sys.argv[1]
import trackio  # noqa: E402
from trackio.sqlite_storage import SQLiteStorage  # noqa: E402

runs, rewards, tables = [], [], []
for project in SQLiteStorage.get_projects():
    for run in trackio.Api().runs(project):
        config = dict(run.config or {})
        runs.append({"id": run.name, "project": project, "group": config.pop("_Group", None), "name": run.name,
                     "config": {k: v for k, v in config.items() if not k.startswith("_")}})
        for row in SQLiteStorage.get_logs(project, run.name):
            if "trainer.tiny.policy/reward" in row:
                rewards.append([row["step"], row["trainer.tiny.policy/reward"], row["timestamp"]])
            for value in row.values():
                if isinstance(value, dict) and value.get("_type") == "trackio.table":
                    rows = value["_value"]
                    tables.append({"columns": list(rows[0]), "data": [list(r.values()) for r in rows]})
print(json.dumps({"runs": runs, "rewards": rewards, "tables": tables}))
