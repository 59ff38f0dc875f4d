"""Checkpoints that are kept by the results of an evaluation."""

import json

from recipe_sdk.checkpoint import complete


def test_the_best_by_an_evaluation_is_kept(make, api, tmp_path):
    """The engine writes results beside the checkpoints: step 2 has the best, and step 5 is not finished."""
    results = [{"step": n, "due": n, "metrics": {"pass@1": v}} for n, v in ((1, 0.2), (2, 0.9), (3, 0.4), (4, 0.5))]
    held_out = {"name": "held_out", "metric": "pass@1", "every": 1, "period": 1, "done": 4, "results": results}
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "evaluations.json").write_text(json.dumps({"v": 1, "evaluations": [held_out]}))
    w = make(api().url, steps=6, save_every=1, keep_last=1, keep_best=1, by="evaluation/held_out",
             checkpoint_dir=str(folder))()  # fmt: skip
    assert [p.name for p in complete(w.config.checkpoint_dir)] == ["step_2", "step_5", "step_6"]
    assert not [e for e in w.read() if e["type"] == "warning" and "best" in e["message"]]
