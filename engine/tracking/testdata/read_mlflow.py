"""Prints what MLflow reads from a folder: the runs, their metrics and the tables of samples."""

import json
import os
import sys

from mlflow import MlflowClient
from mlflow.artifacts import load_dict

client = MlflowClient(tracking_uri="sqlite:///" + os.path.join(sys.argv[1], "mlflow.db"))
runs, rewards, tables = [], [], []
for experiment in client.search_experiments():
    for run in client.search_runs([experiment.experiment_id]):
        runs.append({"id": run.data.tags["recipe.run_id"], "project": experiment.name, "name": run.info.run_name,
                     "status": run.info.status, "config": run.data.params})
        for metric in client.get_metric_history(run.info.run_id, "trainer.tiny.policy/reward"):
            rewards.append([metric.step, metric.value, metric.timestamp / 1000])
        for listed in json.loads(run.data.tags["mlflow.loggedArtifacts"]):
            tables.append(load_dict(run.info.artifact_uri + "/" + listed["path"]))
print(json.dumps({"runs": runs, "rewards": rewards, "tables": tables}))
