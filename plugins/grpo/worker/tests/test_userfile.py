"""A loss and an estimator of the user: the guide's example equals the built-in loss, and errors name the user's line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from recipe_sdk.fields import ConfigError
from recipe_sdk.groups import ReadOptions, read_group
from recipe_sdk.testing import make_group

from worker import batch as batches
from worker import config, objective, userfile
from worker.metrics import Clock
from worker.userfile import UserCodeError

from .conftest import settings
from .test_model import after_steps, stepper
from .test_objective import LENGTHS, data, flat, seq_of

REPOSITORY = Path(__file__).parents[4]
GSPO = f"{REPOSITORY / 'recipes' / 'losses' / 'gspo.py'}:gspo"


def file(tmp_path, text, name="mine.py"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_the_guides_example_is_the_built_in_gspo():
    """Value and gradient on ragged sequences, with a correction, through the whole objective."""
    base = {"model": {"path": "m"}, "data": {"url": "u"}, "kl": {"coefficient": 0.0}}
    found = []
    for loss in ({"name": "gspo", "clip_high": 0.28}, {"imported": GSPO, "clip_high": 0.28}):
        o = objective.options(config.from_dict({**base, "loss": loss}))
        d = data(1)
        lp = flat(d, "lp").clone().requires_grad_()
        plan = objective.prepare(
            o, seq=seq_of(d), n=len(LENGTHS), adv=flat(d, "A"), behavior=flat(d, "b"), old=flat(d, "old")
        )  # fmt: skip
        part = objective.micro_loss(o, plan, torch.arange(len(lp)), lp)
        part.total.backward()
        found.append((part, lp.grad))
    (theirs, want), (ours, got) = found
    assert abs(float(ours.total.detach() - theirs.total.detach())) <= 1e-9
    assert float((got - want).abs().max()) <= 1e-9 and float(want.abs().max()) > 0
    assert ours.metrics.keys() == theirs.metrics.keys()


def test_the_guides_example_has_under_twenty_lines():
    assert len(Path(GSPO.rpartition(":")[0]).read_text().splitlines()) < 20


def test_an_imported_loss_trains_like_the_built_in_one(tmp_path, tiny):
    want, weights = after_steps(stepper(tmp_path, tiny, loss={"name": "gspo"}))
    got, other = after_steps(stepper(tmp_path, tiny, loss={"imported": GSPO}))
    for a, b in zip(want, got, strict=True):
        assert a == pytest.approx(b, abs=1e-9)
    assert all(torch.allclose(weights[k], other[k], atol=1e-9) for k in weights)


def test_a_plain_function_is_a_loss_with_metrics(tmp_path, tiny):
    path = file(
        tmp_path,
        """
from recipe_grpo import Result, maximum, mean, total

def mine(t, o):
    return Result(-t.adv * t.lp, {"mine/mean": mean(t.lp), "mine/max": maximum(t.adv), "mine/tokens": total(t.adv * 0 + 1)})

def plain(t, o):
    return -t.adv * t.lp
""",
    )
    b = batches.build([read_group(make_group(10 + k), ReadOptions()) for k in range(3)])
    report = stepper(tmp_path, tiny, loss={"imported": f"{path}:mine"}).train(b, 0, Clock(torch.device("cpu")))
    assert report["mine/tokens"] == b.size and -8 < report["mine/mean"] < -1
    assert report["mine/max"] == pytest.approx(report["adv/max"])
    plain = stepper(tmp_path, tiny, loss={"imported": f"{path}:plain"}).train(b, 0, Clock(torch.device("cpu")))
    reinforce = stepper(tmp_path, tiny, loss={"name": "reinforce"}).train(b, 0, Clock(torch.device("cpu")))
    assert plain["loss/total"] == pytest.approx(reinforce["loss/total"], abs=1e-12)


def test_a_loss_imports_what_lies_beside_it(tmp_path, monkeypatch):
    monkeypatch.setenv(userfile.IMPORTS, str(tmp_path))
    file(tmp_path, "FACTOR = 2\n", "loss_helper_of_mine.py")
    (tmp_path / "copies").mkdir()
    mine = file(
        tmp_path / "copies",
        "import loss_helper_of_mine\n\ndef mine(t, o):\n    return -t.adv * loss_helper_of_mine.FACTOR\n",
    )
    assert callable(userfile.spec(f"{mine}:mine", "loss").function)


def test_an_estimator_of_ones_own_is_the_built_in_one(tmp_path, tiny):
    path = file(
        tmp_path,
        """
from recipe_grpo import estimator

@estimator("leave_one_out")
def mine(x, o):
    n = x.size()
    return (x.score - x.mean()) * n / (n - 1)
""",
    )
    b = batches.build([read_group(make_group(10 + k), ReadOptions()) for k in range(3)])
    reports = [
        stepper(tmp_path, tiny, advantages=a).train(b, 0, Clock(torch.device("cpu")))
        for a in ({"estimator": "rloo"}, {"imported": f"{path}:mine"})
    ]
    for key in ("adv/max", "adv/std", "loss/total", "grad_norm"):
        assert reports[0][key] == pytest.approx(reports[1][key], abs=1e-12), key


@pytest.mark.parametrize("text,message", [
    ("def mine(t, o):\n    x = 1\n    return t.lp + undefined\n", r"mine.py, line 3, in mine: NameError: .*undefined"),
    ("def mine(t, o):\n    return helper(t)\n\ndef helper(t):\n    return t.nothing\n", r"mine.py, line 5, in helper: Attr"),
])  # fmt: skip
def test_an_error_names_the_line_of_the_users_file(tmp_path, tiny, text, message):
    path = file(tmp_path, text)
    b = batches.build([read_group(make_group(1), ReadOptions())])
    s = stepper(tmp_path, tiny, loss={"imported": f"{path}:mine"})
    path.write_text("# changed in the meantime\n")
    with pytest.raises(UserCodeError, match=message) as e:
        s.train(b, 0, Clock(torch.device("cpu")))
    assert e.value.code == "user_code" and e.value.checks == [
        f"The line: {text.splitlines()[int(message[14]) - 1].strip()}"
    ]


@pytest.mark.parametrize("text,message", [
    ("import nothing_of_that_name\n", "mine.py, line 1: ModuleNotFoundError"),
    ("def mine(t, o:\n", "mine.py, line 1: SyntaxError"),
    ("def other(t, o):\n    return t.lp\n", "has no function mine"),
    ("from recipe_grpo import estimator\n@estimator('mine')\ndef mine(x, o):\n    return x.score\n", "decorated as estimator"),
    ("from recipe_grpo import loss\n@loss('mine', ratio='word')\ndef mine(t, o):\n    return t.lp\n", "line 2: ValueError: ratio"),
])  # fmt: skip
def test_failed_imports_are_found_with_the_settings(tmp_path, text, message):
    path = file(tmp_path, text)
    with pytest.raises(UserCodeError, match=message):
        config.from_dict({"model": {"path": "m"}, "data": {"url": "u"}, "loss": {"imported": f"{path}:mine"}})


@pytest.mark.parametrize("loss,message", [
    ({"imported": "mine"}, "loss.imported: expected"), ({"imported": "mine.txt:f"}, "loss.imported: expected"),
    ({"imported": GSPO, "name": "cispo"}, "in the place of name"),
])  # fmt: skip
def test_references_that_mean_nothing(loss, message):
    with pytest.raises(ConfigError, match=message):
        config.from_dict({"model": {"path": "m"}, "data": {"url": "u"}, "loss": loss})


def test_what_a_decorator_states_is_obeyed(tmp_path):
    path = file(
        tmp_path,
        """
from recipe_grpo import loss

@loss("mine", against="sampler", aggregation="batch-mean-token-mean", aggregations=("batch-mean-token-mean",))
def mine(t, o):
    return -t.adv * t.lp
""",
    )
    base = {"model": {"path": "m"}, "data": {"url": "u"}, "loss": {"imported": f"{path}:mine"}}
    o = objective.options(config.from_dict(base))
    assert (o.aggregation, o.importance, o.needs_behavior) == ("batch-mean-token-mean", "none", True)
    with pytest.raises(ConfigError, match="would count twice"):
        config.from_dict({**base, "correction": {"importance": "token"}})
    with pytest.raises(ConfigError, match="fixes how its tokens are averaged"):
        config.from_dict({**base, "loss": {**base["loss"], "aggregation": "token-mean"}})


def test_a_whole_run_trains_with_it(make, api, tmp_path):
    path = file(tmp_path, Path(GSPO.rpartition(":")[0]).read_text())
    w = make(api().url, loss={"imported": f"{path}:gspo"}, steps=2)()
    assert w.reason == "completed" and len(w.metrics()) == 2 and w.metrics()[0]["grad_norm"] > 0


def test_a_failed_import_is_reported(tmp_path, tiny):
    path = file(tmp_path, "1 / 0\n")
    given = tmp_path / "config.json"
    given.write_text(json.dumps(settings(tmp_path, tiny, "http://unused", loss={"imported": f"{path}:mine"})))
    done = subprocess.run(
        [sys.executable, "-m", "worker", "--config", str(given)], capture_output=True, text=True, check=False,
        timeout=300, env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert done.returncode == 1 and "mine.py, line 1: ZeroDivisionError" in done.stderr
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(e["code"], e["message"]) for e in events if e["type"] == "error"] == [
        ("user_code", "mine.py, line 1: ZeroDivisionError: division by zero")
    ]
    assert userfile.split(f"{path}:mine") == (str(path), "mine")
