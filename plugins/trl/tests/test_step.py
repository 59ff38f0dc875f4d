"""scripts/bench-gpu/step.py --beside-trl times the worker's step and TRL's on the same batch, each case by itself."""

import argparse
import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
from packaging.version import Version

from .conftest import LIMIT, ROOT

pytestmark = pytest.mark.skipif(Version(version("trl")) < Version("1.16"), reason="the newest TRL is timed")
TINY = ["--shape", "tiny", "--sequences", "8", "--length", "64", "--device", "cpu", "--steps", "1"]


def results(folder, *arguments, script="step.py"):
    """The lines that the benchmark prints, by case."""
    command = [sys.executable, ROOT / "scripts" / "bench-gpu" / script, *TINY, "--limit", str(LIMIT), *arguments]
    done = subprocess.run(
        [*command, "--out", folder / "step.json"], capture_output=True, text=True, timeout=3 * LIMIT, check=False,
        cwd=folder, env={**os.environ, "TORCH_EXTENSIONS_DIR": str(folder)},
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr
    return {line["case"]: line for line in lines}, done.returncode


@pytest.mark.short
def test_both_train_the_same_tokens(tmp_path):
    found, status = results(tmp_path, "--cases", "master", "--budget", str(LIMIT), "--beside-trl")
    ours, trl = found["master"], found["trl master"]
    assert status == 0 and trl["failed"] == []
    assert ours["tokens"] == trl["tokens"] == 8 * 64
    # The weights are random, each program's its own; the batch, the loss and its normalization decide the norm.
    assert trl["grad_norms"][0] == pytest.approx(ours["grad_norm"], rel=0.2)
    assert found["master : trl"]["tokens_per_second"] == pytest.approx(
        ours["tokens_per_second"] / trl["tokens_per_second"], abs=0.01
    )


@pytest.mark.short
def test_every_case_of_trl_is_one_of_ours(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "bench-gpu"))
    import trl_step

    nothing = argparse.Namespace()
    assert {trl_step.case_of(nothing, c)["length"] for c in trl_step.CASES} == {1024, 8192, 32768}


def test_failed_offloading_leads_to_the_next_settings(tmp_path):
    """DeepSpeed is not in this environment."""
    cases = ["7B-lora-8k-recomputed", "7B-full-8k", "7B-full-8k-gpu"]
    found, status = results(tmp_path, "--cases", ",".join(cases), script="trl_step.py")
    adapters, full, kept = (found[f"trl {c}"] for c in cases)
    assert status == 0
    assert adapters["gradient_checkpointing"] and not kept["gradient_checkpointing"]
    assert 0 < adapters["grad_norms"][0] < full["grad_norms"][0], "adapters train fewer weights"
    assert [f["settings"] for f in full["failed"]] == [{"micro_batch": 8, "offload": "deepspeed"}]
    assert "deepspeed" in full["failed"][0]["error"].lower()
    assert [(r["offload"], r["micro_batch"]) for r in (adapters, full, kept)] == [(None, 8), (None, 2), (None, 1)]
    assert adapters["failed"] == kept["failed"] == []


def test_a_case_without_settings_that_work_says_so(tmp_path):
    found, status = results(tmp_path, "--cases", "lora", "--sequences", "1", script="trl_step.py")
    assert status == 1
    assert "at least 2 generations" in found["trl lora"]["error"]


def test_a_case_that_takes_too_long_is_stopped(tmp_path):
    found, status = results(tmp_path, "--cases", "lora", "--limit", "1", script="trl_step.py")
    assert (status, found["trl lora"]["error"]) == (1, "timed out after 1 s")
