"""The best checkpoints by an evaluation: what stays, what waits for a result, and a file that decides nothing."""

import json
import os

import pytest

from recipe_sdk import evaluated, settings
from recipe_sdk.checkpoint import MARKER, complete, prune
from recipe_sdk.settings import RunSettings


def write(folder, values, done):
    results = [{"step": n, "due": n, "metrics": {"pass@1": v, "score": -v}} for n, v in values.items()]
    block = {"name": "held_out", "metric": "pass@1", "every": 25, "period": 1, "done": done, "results": results}
    (folder / evaluated.FILE).write_text(json.dumps({"v": 1, "evaluations": [block]}))


def left(folder, steps, metric="", by="", **change):
    """The checkpoints of these steps that are left, and the warnings."""
    for n in steps:
        made = folder / f"step_{n}"
        (made / "training").mkdir(parents=True, exist_ok=True)
        (made / "training" / "state.json").write_text(json.dumps({"metrics": {"reward/mean": n}}))
        (made / MARKER).touch()
    given = {"checkpoint_dir": str(folder), "keep_last": 1, "keep_best": 1, "model": {"path": "m"},
             "data": {"url": "http://x"}, **({"by": by} if by else {"best_metric": metric}), **change}  # fmt: skip
    warnings = []
    prune(settings.from_dict(given, RunSettings), complete(folder)[-1], warnings.append)
    return [int(p.name.removeprefix("step_")) for p in complete(folder)], warnings


@pytest.mark.parametrize(
    ("values", "done", "steps", "metric", "want"),
    [
        ({25: 0.2, 50: 0.6, 75: 0.4}, 75, [25, 50, 75, 100], "evaluation/held_out/pass@1", [50, 100]),
        ({25: 0.2, 50: 0.6}, 50, [25, 50, 75], "evaluation/held_out/score", [25, 75]),
        ({25: 0.5, 50: 0.5}, 50, [25, 50, 75], "evaluation/held_out", [50, 75]),  # of equal ones the newest
        ({25: 0.2}, 25, [10, 25, 50, 55], "evaluation/held_out", [25, 50, 55]),  # that of 50 is not finished
        ({25: 0.2}, 50, [25, 50, 55], "evaluation/held_out", [25, 55]),  # that of 50 has failed
        ({25: 0.2, 50: 0.9}, 50, [25, 50], "evaluation/held_out", [50]),  # the newest is the best
        ({25: float("nan"), 50: 0.1}, 50, [25, 50, 55], "evaluation/held_out", [50, 55]),
    ],
)
def test_the_best_stays(tmp_path, values, done, steps, metric, want):
    write(tmp_path, values, done)
    assert left(tmp_path, steps, metric) == (want, [])


def test_by_goes_before_the_metric(tmp_path):
    write(tmp_path, {25: 0.9, 50: 0.1}, 50)
    assert left(tmp_path, [25, 50, 55], by="evaluation/held_out") == ([25, 55], [])
    assert left(tmp_path, [25, 50, 55], "reward/mean") == ([55], [])


def test_few_wait_for_a_result(tmp_path):
    write(tmp_path, {}, -1)
    kept, warnings = left(tmp_path, [25, 50, 75, 100, 101], "evaluation/held_out")
    assert kept == [75, 100, 101]
    assert warnings == ["the checkpoint of step 50 is not kept any longer for evaluation held_out, which is not "
                        "finished: at most 2 wait for it"]  # fmt: skip


def test_evaluated_steps_follow_updates():
    for every, period, want in ((10, 4, [8, 20, 28, 40]), (3, 4, [*range(4, 41, 4)]), (0, 1, []), (20, 1, [20, 40])):
        due = [n for n in range(1, 41) if evaluated._awaited({"every": every, "period": period, "done": -1}, n)]
        assert due == want, (every, period)


def link(path):
    write(path.parent, {}, -1)
    path.rename(path.with_name("other"))
    path.symlink_to("other")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: None, "No such file"), (lambda path: os.mkfifo(path), "not a regular file"), (link, "ymbolic"),
        (lambda path: path.write_text('{"v": 2}'), "format version 1"),
        (lambda path: path.write_text("{"), "Expecting"),
        (lambda path: path.write_text('{"v": 1, "evaluations": 3}'), "iterable"),
        (lambda path: path.write_text("[" * 200_000), "recursion"),
        (lambda path: write(path.parent, {float("inf"): 0.5}, -1), "infinity"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_removes_nothing_kept(tmp_path, make, why):
    make(tmp_path / evaluated.FILE)
    kept, (warning,) = left(tmp_path, [5, 6, 7, 8, 9], "evaluation/held_out")
    assert kept == [5, 6, 7, 9] and "it is not known which checkpoint is the best" in warning and why in warning


def test_a_link_among_checkpoints_removes_nothing(tmp_path):
    other, folder = tmp_path / "other" / "step_9", tmp_path / "checkpoints"
    other.mkdir(parents=True)
    (other / MARKER).touch()
    folder.mkdir()
    (folder / "step_1").symlink_to(other)
    (folder / "step_²").mkdir()  # is a digit, and no number
    (folder / "step_²" / MARKER).touch()
    kept, _ = left(folder, [2, 3], "evaluation/none", keep_best=0)
    assert kept == [3] and (other / MARKER).exists() and not (folder / "step_1").is_symlink()
