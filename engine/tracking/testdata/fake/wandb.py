"""Stands in for the package wandb: writes its calls to calls.jsonl in the folder of the run. A file `fails` there makes
the next call of log fail, one called `hangs` makes log wait for ever."""

import json
import os
import sys
import time


def Settings(**settings):
    return settings


def Table(columns, data):
    return {"columns": columns, "data": data}


class Run:
    step = 0

    def __init__(self, **given):
        self.dir = given["dir"]
        self._write("init", given)

    def define_metric(self, name, **given):
        self._write("define_metric", {"name": name, **given})

    def log(self, data, step, commit):
        if os.path.exists(os.path.join(self.dir, "hangs")):
            time.sleep(3600)
        if os.path.exists(os.path.join(self.dir, "fails")):
            os.remove(os.path.join(self.dir, "fails"))
            print("to standard error", file=sys.stderr)
            raise ConnectionError("refused by https://user:hunter2@wandb.example")
        self.step = step
        self._write("log", {"data": data, "step": step})

    def finish(self):
        self._write("finish", {})

    def _write(self, call, given):
        with open(os.path.join(self.dir, "calls.jsonl"), "a") as file:
            file.write(json.dumps({"call": call, "given": given, "key": "WANDB_API_KEY" in os.environ}) + "\n")
        print("wandb prints to standard output")


def init(**given):
    return Run(**given)
