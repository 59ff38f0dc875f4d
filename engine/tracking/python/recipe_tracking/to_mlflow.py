"""MLflow."""

import json
import os

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from .when import seconds

RUN_TAG = "recipe.run_id"
BATCH = 1000  # metrics, and 100 parameters, are what MLflow takes in one call


class Run:
    """One run of an experiment, found by a tag."""

    def __init__(self, settings):
        uri = settings["tracking_uri"] or "sqlite:///" + os.path.join(settings["dir"], "mlflow.db")
        self.client = MlflowClient(tracking_uri=uri)
        self.experiment = self._experiment(settings)
        self.run_id = self._run(settings)
        self.client.update_run(self.run_id, status="RUNNING")
        self._parameters(settings["config"])
        self.metrics = []

    def _experiment(self, settings):
        name = settings["experiment_name"]
        found = self.client.get_experiment_by_name(name)
        if found:
            return found.experiment_id
        # On a server the artifacts are where it puts them.
        local = None if settings["tracking_uri"] else "file://" + os.path.join(settings["dir"], "artifacts")
        return self.client.create_experiment(name, artifact_location=local)

    def _run(self, settings):
        found = self.client.search_runs([self.experiment], f"tags.`{RUN_TAG}` = '{settings['run_id']}'", max_results=1)
        if found:
            return found[0].info.run_id
        tags = {RUN_TAG: settings["run_id"]}
        return self.client.create_run(self.experiment, run_name=settings["name"], tags=tags).info.run_id

    def _parameters(self, config):
        """Logs the parameters that the run does not have: MLflow refuses another value."""
        known = self.client.get_run(self.run_id).data.params
        new = [Param(k, v) for k, v in sorted(flat(config)) if k not in known]
        for i in range(0, len(new), 100):
            self.client.log_batch(self.run_id, params=new[i : i + 100])

    def log(self, prefix, metrics, event):
        at, step = int(seconds(event) * 1000), event.get("step", 0)
        self.metrics += [Metric(name, value, at, step) for name, value in metrics.items()]

    def table(self, name, columns, rows, event):
        path = f"{name}/{event['seq']}.json"
        self.client.log_dict(self.run_id, {"columns": columns, "data": rows}, path)
        # This tag makes MLflow's page show the file as a table.
        tag = "mlflow.loggedArtifacts"
        listed = json.loads(self.client.get_run(self.run_id).data.tags.get(tag, "[]"))
        entry = {"path": path, "type": "table"}
        if entry not in listed:
            self.client.set_tag(self.run_id, tag, json.dumps([*listed, entry]))

    def flush(self):
        while self.metrics:
            self.client.log_batch(self.run_id, metrics=self.metrics[:BATCH])
            self.metrics = self.metrics[BATCH:]

    def close(self):
        self.flush()
        self.client.set_terminated(self.run_id)


def flat(value, name=""):
    """Pairs of the name and the text of each value in nested objects."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else key)
    elif name:
        yield name, str(value)[:6000]
