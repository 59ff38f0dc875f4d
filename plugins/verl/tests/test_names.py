"""What verl would look for in the first step is looked for at the start: no batch has come, and no step is lost."""

import pytest
from conftest import LIMIT


@pytest.mark.parametrize(("config", "words"), [
    ({"algorithm": {"adv_estimator": "grop"}}, "Unknown advantage estimator simply: grop"),
    ({"actor": {"policy_loss": {"loss_mode": "gspoo"}}}, "Unsupported loss mode: gspoo"),
    ({"actor": {"use_kl_loss": True, "kl_loss_type": "k9"}}, "no such kl_loss_type"),
    ({"algorithm": {"rollout_correction": {"rollout_is": "tokn"}}}, "rollout_is: tokn"),
    ({"algorithm": {"rollout_correction": {"rollout_rs": "x", "rollout_rs_threshold": 2.0}}}, "rollout_rs"),
])  # fmt: skip
def test_a_name_that_verl_does_not_have_ends_the_start(config, words, start):
    run = start("run", config)
    assert run.process.wait(LIMIT) != 0
    (error,) = run.reported("error")
    assert "verl refuses its configuration" in error["message"] and words in error["message"], error
    assert not run.reported("loaded") and not run.reported("metric")
