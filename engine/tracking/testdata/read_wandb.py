"""Prints what W&B's offline files below a folder hold: the runs, their metrics and the tables of samples.

The files are logs of records of wandb's own protobuf messages, in the format of LevelDB's log, which wandb 0.31 reads
only in its Go program.
"""

import glob
import json
import os
import struct
import sys

from wandb.proto.wandb_internal_pb2 import Record

BLOCK, HEADER = 32768, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    assert data[:4] == b":W&B", f"{path} is no file of W&B"
    at, message = HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # too short for a header: padding
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEADER])
        message = (b"" if kind in (FULL, FIRST) else message) + data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (FULL, LAST):
            record = Record()
            record.ParseFromString(message)
            yield record


def name(item):
    return "/".join(item.nested_key) if item.nested_key else item.key


runs, rewards, tables, axes = [], [], [], {}
for path in sorted(glob.glob(os.path.join(sys.argv[1], "wandb", "offline-run-*", "*.wandb"))):
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run" and record.run.run_id not in [r["id"] for r in runs]:
            r = record.run
            config = {u.key: json.loads(u.value_json) for u in r.config.update}
            config.pop("_wandb", None)
            runs.append({"id": r.run_id, "project": r.project, "entity": r.entity, "group": r.run_group,
                         "name": r.display_name, "tags": list(r.tags), "config": config})
        elif kind == "metric" and record.metric.step_metric:
            axes[record.metric.glob_name or record.metric.name] = record.metric.step_metric
        elif kind == "history":
            row = {name(i): json.loads(i.value_json) for i in record.history.item}
            if "trainer.tiny.policy/reward" in row:
                rewards.append([row["trainer.tiny.policy/step"], row["trainer.tiny.policy/reward"], row["_timestamp"]])
            for key in [k for k, v in row.items() if v == "table-file"]:
                table = os.path.join(os.path.dirname(path), "files", row[key.removesuffix("_type") + "path"])
                with open(table) as file:
                    tables.append(json.load(file))
print(json.dumps({"runs": runs, "rewards": rewards, "tables": tables, "axes": axes}))
