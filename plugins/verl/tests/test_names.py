"""What verl would look for in the first step is looked for at the start: no batch has come, and no step is lost."""

import pytest
from conftest import LIMIT


@pytest.mark.parametrize(("config", "words", "setting"), [
    ({"algorithm": {"adv_estimator": "grop"}}, "Unknown advantage estimator simply: grop", "algorithm.adv_estimator"),
    ({"actor": {"policy_loss": {"loss_mode": "gspoo"}}}, "Unsupported loss mode: gspoo",
     "actor.policy_loss.loss_mode"),
    ({"actor": {"use_kl_loss": True, "kl_loss_type": "k9"}}, "no such kl_loss_type", "actor.kl_loss_type"),
    ({"algorithm": {"rollout_correction": {"rollout_is": "tokn"}}}, "rollout_is: tokn",
     "algorithm.rollout_correction.rollout_is"),
    ({"algorithm": {"rollout_correction": {"rollout_rs": "x", "rollout_rs_threshold": 2.0}}}, "rollout_rs",
     "algorithm.rollout_correction.rollout_rs"),
    ({"actor": {"loss_agg_mode": "nope"}}, "Invalid loss_agg_mode: nope", "actor.loss_agg_mode"),
])  # fmt: skip
def test_a_name_that_verl_does_not_have_ends_the_start(config, words, setting, start):
    run = start("run", config)
    assert run.process.wait(LIMIT) != 0
    (error,) = run.reported("error")
    assert "verl refuses its configuration" in error["message"] and words in error["message"], error
    assert error["setting"] == f"config.{setting}"
    assert not run.reported("loaded") and not run.reported("metric")
