"""The worker end to end on the CPU against a trajectory server: training, leases, resume, faults, commands."""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from recipe_sdk import errors
from recipe_sdk.checkpoint import MARKER, complete, newest
from recipe_sdk.columns import Encoded
from recipe_sdk.groups import GroupRejected, ReadOptions, read_group
from recipe_sdk.spool import Spool
from recipe_sdk.testing import Supervisor, make_group

from worker import compiled, config, model
from worker.__main__ import main as command_line
from worker.__main__ import work

from . import processes
from .conftest import settings


def losses(worker):
    return [m["loss/total"] for m in worker.metrics()]


def test_a_run_trains_saves_and_reports(make, api):
    server = api()
    w = make(server.url, data={"token": "secret"})()
    assert w.reason == "completed" and w.bridge.step == 4
    assert server.token == "Bearer secret"
    assert server.acked == [0, 1, 2, 3]
    assert server.registered[0] == {
        "wandb_group": "", "wandb_project": "", "batch_size": 8, "max_token_len": 2048, "starting_step": 0,
        "checkpoint_dir": w.config.checkpoint_dir, "save_checkpoint_interval": 2, "num_steps": 4,
        "rollout_parts": True,
    }  # fmt: skip
    assert [p.name for p in complete(w.config.checkpoint_dir)] == ["step_2", "step_4"]
    for m in w.metrics():
        for key in ("loss/policy", "reward/mean", "reward/std", "groups/zero_variance", "length/response_mean",
                    "clip/high", "clip/low", "entropy", "grad_norm", "learning_rate", "tokens/per_second",
                    "mismatch/kl", "mismatch/max_abs", "mismatch/ess", "staleness/mean", "time/wait", "time/forward",
                    "time/backward", "time/optimizer", "memory/process_peak", "adv/override_frac", "env/0/reward/mean",
                    "logprob/positive", "rejected_groups/total"):  # fmt: skip
            assert key in m and math.isfinite(m[key]), key
        assert m["grad_norm"] > 0
    kinds = [e["type"] for e in w.read()]
    assert kinds.count("metric") == 4 and "registered" in kinds
    assert "secret" not in open(w.config.events_file).read()
    assert "secret" not in (newest(w.config.checkpoint_dir) / "training" / "state.json").read_text()


# docs: troubleshooting.md A trained group that no longer fits, an adapter that is not served, a merged checkpoint …
def test_transformers_loads_the_checkpoints(make, api):
    from transformers import AutoModelForCausalLM

    w = make(api().url, steps=2)()
    path = newest(w.config.checkpoint_dir)
    loaded = AutoModelForCausalLM.from_pretrained(path)
    assert loaded.dtype == torch.float64
    mine = dict(w.trainer.policy.causal.named_parameters())
    for name, p in loaded.named_parameters():
        assert torch.equal(p, mine[name])


# docs: survival.md the merged checkpoint is the base model
def test_a_checkpoint_of_adapters_is_the_trained_model(make, api, tiny):
    """The merged model and the adapter beside it answer as the policy does (verl#7285, #4553, #1821: as the base)."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    w = make(api().url, steps=3, lora={"rank": 4, "alpha": 32}, optimizer={"learning_rate": 1e-2})()
    path, ids = newest(w.config.checkpoint_dir), torch.tensor([[3, 4, 5, 6, 7, 8]])
    base = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float64)
    with torch.no_grad():
        plain, trained = base(ids).logits, w.trainer.policy.causal(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64)(ids).logits
        adapted = PeftModel.from_pretrained(base, path / "adapter", autocast_adapter_dtype=False)(ids).logits
    assert (trained - plain).abs().max() > 1e-3
    assert torch.allclose(merged, trained, atol=1e-6) and torch.allclose(adapted, trained, atol=1e-6)


@pytest.mark.parametrize("extra", [
    {},
    {"lora": {"rank": 4}, "kl": {"coefficient": 0.1}},
    {"lora": {"rank": 4, "dropout": 0.2}},
    {"advantages": {"normalization": "global", "normalize_scope": "all"}, "entropy": {"coefficient": 0.01, "adaptive": True},
     "kl": {"reward_coefficient": 0.1, "adaptive_target": 0.01, "adaptive_horizon": 8},
     "optimizer": {"schedule": "cosine", "warmup_steps": 2}, "loss": {"name": "clip_cov", "clip_cov_ratio": 0.3,
                                                                      "clip_cov_bounds": [0.0, 9.0]}},
], ids=["full", "lora", "dropout", "stateful"])  # fmt: skip
def test_resume_is_exact_after_a_kill(make, api, tmp_path, extra):
    """Killed after step 5 with a checkpoint at 4 and one batch taken but not trained: the resumed run's losses and
    final weights are those of the unbroken run, and no batch is lost or trained twice."""
    unbroken = make(api().url, where=tmp_path / "a", steps=8, save_every=4, **extra)()
    server = api()
    first = make(server.url, where=tmp_path / "b", steps=8, save_every=4, **extra).load()
    for _ in range(5):
        first.train_one()
    first.bridge.feed.decide()  # batch 5 is spooled and acknowledged, then the process dies
    first.close()
    second = make(server.url, where=tmp_path / "b", steps=8, save_every=4, **extra)()
    assert losses(second)[-4:] == losses(unbroken)[-4:]
    assert server.acked == list(range(8))
    assert server.registered[-1]["starting_step"] == 4
    a, b = (dict(w.trainer.policy.named_parameters()) for w in (unbroken, second))
    assert all(torch.equal(a[n], b[n]) for n in a)
    a, b = (newest(w.config.checkpoint_dir) / "training" / "rng.pt" for w in (unbroken, second))
    assert a.read_bytes() == b.read_bytes()


def test_warming_up_keeps_the_random_states(make, api, monkeypatch):
    """A run that continues compiles again, and dropout draws then; the steps after it must not notice."""
    w = make(api().url).load()
    monkeypatch.setattr(compiled, "unavailable", lambda _device: "")
    monkeypatch.setattr(compiled, "note_time", lambda _policy, _seconds: None)
    monkeypatch.setattr(w.trainer.stepper, "warm_up", lambda _config: torch.rand(1).item() + random.random())
    torch_before, python_before = torch.get_rng_state(), random.getstate()
    w.trainer.warm_up()
    assert torch.equal(torch.get_rng_state(), torch_before) and random.getstate() == python_before
    w.close()


def test_a_new_run_takes_nothing_of_an_earlier_one(make, api, tmp_path):
    first = make(api().url, steps=8, save_every=0).load()
    for _ in range(3):
        first.train_one()
    first.close()  # killed: no checkpoint, three batches in the spool
    server = api(batch=lambda k: [make_group(1000 + 100 * k + j) for j in range(2)])
    anew = make(server.url, steps=2, save_every=0, resume=False)()
    alone = make(api(batch=server.batch).url, where=tmp_path / "alone", steps=2, save_every=0)()
    assert losses(anew)[-2:] == losses(alone) and server.acked == [0, 1]
    with pytest.raises(errors.CheckpointError, match=r"resume is false, and .*step_2 is there"):
        make(server.url, steps=2, resume=False)()


def test_the_first_batch_is_requested_before_loading(make, api, tmp_path, monkeypatch):
    """But not in a run that continues, where inference has to get its weights first."""
    asked, load = [], model.load_policy
    monkeypatch.setattr(model, "load_policy", lambda *a: asked.append(list(server.acked)) or load(*a))
    server = api()
    make(server.url, steps=1)()
    make(server.url, steps=2)()
    assert asked == [[0], [0]] and server.acked == [0, 1]


def test_kill_between_store_and_acknowledgement(make, api, tmp_path):
    for lost in (False, True):
        server = api()
        where = tmp_path / str(lost)
        first = make(server.url, where=where, steps=4).load()
        first.bridge.feed.rollouts._ack = lambda lease: (_ for _ in ()).throw(KeyboardInterrupt)
        assert first.bridge.feed.rollouts.poll().number == 0  # came while the model was loaded
        with pytest.raises(KeyboardInterrupt):
            first.bridge.feed.rollouts.poll()
        first.close()
        if lost:
            server.expire()
        second = make(server.url, where=where, steps=4)()
        assert server.acked == [0, 1, 2, 3]
        outcome = [e["outcome"] for e in second.read() if e["type"] == "lease"]
        assert outcome == (["lost"] if lost else ["kept"])
        assert second.bridge.step == 4


def test_kill_between_the_lease_and_the_spool(make, api, tmp_path):
    """The server leased a batch, and the process died before it stored it: registering again brings it back, in order."""
    unbroken = make(api().url, where=tmp_path / "a", steps=4)()
    server = api(early=False)
    first = make(server.url, where=tmp_path / "b", steps=4).load()
    first.train_one()
    first.bridge.feed.rollouts.spool.put = lambda *a: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        first.bridge.feed.decide()
    first.close()
    assert server.formed == 2 and server.acked == [0]
    second = make(server.url, where=tmp_path / "b", steps=4)()
    assert losses(second)[-4:] == losses(unbroken)
    assert server.acked == [0, 1, 2, 3]


def test_tokenizers_are_copied_with_any_template(make, api, tmp_path, tiny):
    """DeepHermes and tool-calling models bring a list or dictionary of chat templates; it must be kept unchanged."""
    shutil.copytree(tiny, tmp_path / "model")
    templates = {"chat_template": [{"name": "default", "template": "x"}, {"name": "tool_use", "template": "y"}]}
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(templates))
    (tmp_path / "model" / "additional_chat_templates").mkdir()
    (tmp_path / "model" / "additional_chat_templates" / "tool_use.jinja").write_text("z")
    (tmp_path / "model" / "generation_config.json").unlink(missing_ok=True)
    w = make(api().url, model_path=str(tmp_path / "model"), steps=1)()
    saved = newest(w.config.checkpoint_dir)
    assert json.loads((saved / "tokenizer_config.json").read_text()) == templates
    assert (saved / "additional_chat_templates" / "tool_use.jinja").read_text() == "z"
    assert not (saved / "generation_config.json").exists()  # the source had none: sampling defaults must not change


def test_half_written_checkpoints_are_never_read(make, api):
    server = api()
    w = make(server.url, steps=4)()
    last = newest(w.config.checkpoint_dir)
    (last / MARKER).unlink()
    shutil.rmtree(last / "training")
    assert newest(w.config.checkpoint_dir).name == "step_2"


def test_keep_last_and_keep_best(make, api):
    def batch(k):  # rewards peak in the second batch
        groups = [make_group(100 * k + j) for j in range(2)]
        for g in groups:
            g["scores"] = [s + (10.0 if k == 1 else 0.0) for s in g["scores"]]
        return groups

    w = make(api(batch=batch).url, steps=6, save_every=1, keep_last=1, keep_best=1)()
    assert [p.name for p in complete(w.config.checkpoint_dir)] == ["step_2", "step_6"]


def test_the_last_step_is_saved_at_any_interval(make, api):
    w = make(api().url, steps=3, save_every=2)()
    assert [p.name for p in complete(w.config.checkpoint_dir)] == ["step_2", "step_3"]


def test_servers_without_leases_work(make, api):
    w = make(api(leases=False).url)()
    assert w.bridge.step == 4


# docs: troubleshooting.md /batch answers an error with 200
def test_a_forgotten_registration_is_renewed(make, api):
    def fault(method, path, count):
        if path == "/batch" and count == 2:
            return 200, {"status": "error", "message": "Trainer not registered. Call /register first.", "batch": []}
        if path == "/batch" and count == 4:
            return 200, {"status": "error", "message": "disk on fire", "batch": []}
        return None

    server = api(fault=fault)
    w = make(server.url)()
    assert len(server.registered) == 2 and w.bridge.step == 4
    reasons = [e["reason"] for e in w.read() if e["type"] == "retry"]
    assert any("registering again" in r for r in reasons) and any("disk on fire" in r for r in reasons)


def test_connection_faults_are_retried(make, api):
    def fault(method, path, count):
        if path == "/register" and count == 0:
            return 503, {"detail": "starting"}
        if path == "/batch":
            return {1: "drop", 2: (500, b"Internal Server Error"), 3: (200, b"{half")}.get(count)
        return None

    w = make(api(fault=fault).url)()
    assert w.bridge.step == 4
    retries = [e for e in w.read() if e["type"] == "retry"]
    assert [r["what"] for r in retries] == ["register", "batch", "batch", "batch"]
    assert "HTTP 503" in retries[0]["reason"] and "not JSON" in retries[3]["reason"]


def test_registration_gives_up_with_guidance(make):
    w = make("http://127.0.0.1:9", data={"register_attempts": 2})
    with pytest.raises(errors.AtroposAPIError) as e:
        w()
    assert e.value.kind == "refused" and len(e.value.checks) == 3
    assert "1. " in str(e.value) and "3. " in str(e.value)


def test_group_and_project_of_a_tracker_are_registered(make, api, monkeypatch):
    """L2: environments take both from the trajectory API."""
    monkeypatch.setenv("WANDB_RUN_GROUP", "sweep")
    monkeypatch.setenv("WANDB_PROJECT", "sums")
    server = api()
    make(server.url)()
    assert [server.registered[0][k] for k in ("wandb_group", "wandb_project")] == ["sweep", "sums"]
    server = api()
    make(server.url, data={"wandb_group": "own"})()
    assert [server.registered[0][k] for k in ("wandb_group", "wandb_project")] == ["own", "sums"]


def test_a_refusal_is_final(make, api):
    w = make(api(fault=lambda m, p, n: (401, {"detail": "token"}) if p == "/register" else None).url)
    with pytest.raises(errors.AtroposAPIError) as e:
        w()
    assert e.value.kind == "http_4xx" and "401" in str(e.value)


# docs: troubleshooting.md At 100 % no batch comes any more
def test_no_data_says_why_and_fails(make, api):
    w = make(api(limit=1).url, data={"explain_after": 0.05, "no_data_timeout": 3.0})
    with pytest.raises(errors.NoDataError, match="queue is empty"):
        w()
    explained = [e for e in w.read() if e["type"] == "no_data"]
    assert len(explained) == 2 and any("equal scores" in c for c in explained[0]["checks"])


# docs: troubleshooting.md At 100 % no batch comes any more
def test_no_data_after_a_solved_task_ends_well(make, api):
    w = make(api(limit=2).url, data={"explain_after": 0.05, "no_data_timeout": 0.3, "solved_reward": 0.0})()
    assert w.reason == "solved" and w.bridge.step == 2
    assert newest(w.config.checkpoint_dir).name == "step_2"


def test_the_run_goes_on_without_unreadable_groups(make, api):
    """A token id of 10^26 once ended every attempt of the worker: the batch was read again from its spool."""

    def batch(k):
        good, poison = make_group(k), make_group(k + 50)
        poison["tokens"][0][0] = 10**26
        odd = make_group(k + 70)
        odd["policy_version"], odd["overrides"] = 10**30, [{"rewards": {"a": 1, "b": {}}}] * 4
        return [good, poison, odd, [1, 2], None]

    fake = api(batch=batch)
    w = make(fake.url, steps=2)()
    assert w.bridge.step == 2 and fake.acked == [0, 1]
    refused = [e for e in w.read() if e["type"] == "rejected"]
    assert refused[0]["reasons"] == {"tokens": 1, "not_finite": 1, "shape": 2}
    kept = sorted(Path(refused[0]["set_aside"]).glob("*.json"))
    assert len(kept) == 8
    first = json.loads(kept[0].read_text())
    assert first["batch"] == 0 and "token ids from 0 to 2147483647" in first["reason"]
    assert first["group"]["tokens"][0][0] == 10**26


def test_an_exception_in_reading_rejects_one_group():
    class Odd(dict):
        def get(self, *_):
            raise RuntimeError("odd")

    with pytest.raises(GroupRejected, match="RuntimeError: odd") as caught:
        read_group(Odd(), ReadOptions())
    assert caught.value.reason == "unreadable"


def test_numbers_too_long_cost_only_their_group(make, api):
    def fault(method, path, count):
        if path == "/batch" and count == 0:
            poison = json.dumps(make_group(1)).replace("-100", "1" * 5000, 1)
            good = json.dumps(make_group(2))
            return 200, f'{{"batch": [{poison}, {good}]}}'.encode()
        return None

    w = make(api(fault=fault).url, steps=1, data={"lease_seconds": 0})()
    assert w.bridge.step == 1
    assert len(w.metrics()) == 1


def test_bad_groups_are_refused_and_the_rest_trains(make, api):
    def batch(k):
        good, bad = make_group(k), make_group(k + 50)
        bad["masks"][0] = bad["masks"][0][:-1]
        return [good, bad] if k != 1 else [bad]

    w = make(api(batch=batch).url, steps=2)()
    refused = [e for e in w.read() if e["type"] == "rejected"]
    assert len(refused) == 3 and refused[0]["reasons"] == {"shape": 1}
    assert [m["rejected_groups/shape"] for m in w.metrics()] == [1, 1]
    assert [e["reason"] for e in w.read() if e["type"] == "skipped"] == ["no group of it can be trained"]


# docs: troubleshooting.md Log-probabilities shifted by one, or of other tokens
def test_a_large_mismatch_stops_before_the_update(make, api):
    def batch(k):
        groups = [make_group(k)]
        if k == 1:
            groups[0]["inference_logprobs"] = [
                [x - 3 if x < 0 else x for x in s] for s in groups[0]["inference_logprobs"]
            ]
        return groups

    w = make(api(batch=batch).url)
    w.load()
    w.train_one()
    before = {n: p.clone() for n, p in w.trainer.policy.named_parameters()}
    with pytest.raises(errors.MismatchError, match="base model"):
        w.trainer.loop()
    assert all(torch.equal(before[n], p) for n, p in w.trainer.policy.named_parameters())
    w.close()
    again = make(w.config.data.url)()  # the invalid batch does not come again
    assert again.bridge.step == 4


def test_mismatch_can_skip(make, api):
    def batch(k):
        g = make_group(k)
        g["inference_logprobs"] = [[x - 3 if x < 0 and k == 1 else x for x in s] for s in g["inference_logprobs"]]
        return [g]

    w = make(api(batch=batch).url, steps=3, correction={"mismatch_action": "skip"})()
    assert [e["batch"] for e in w.read() if e["type"] == "skipped"] == [1]
    assert w.bridge.step == 3


# docs: troubleshooting.md Temperature or top_p make log-probabilities of the two sides differ
@pytest.mark.parametrize("served,configured", [("raw", "processed"), ("processed", "raw")])
def test_a_wrong_log_probability_is_named(make, api, tiny, served, configured):
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float64)

    def batch(k):
        g = make_group(k)
        g["generation_params"] = {"temperature": 0.3}
        with torch.no_grad():
            for tokens, values in zip(g["tokens"], g["inference_logprobs"], strict=True):
                logits = base(torch.tensor([tokens])).logits[0]
                full = (logits / (0.3 if served == "processed" else 1.0)).log_softmax(-1)
                for t, v in enumerate(values):
                    if v < 0:
                        values[t] = float(full[t - 1, tokens[t]])
        return [g]

    w = make(api(batch=batch).url, steps=1, correction={"logprobs_mode": configured})
    with pytest.raises(errors.MismatchError, match=f"are {served} ones, this run is set up for {configured}"):
        w()
    right = make(api(batch=batch).url, steps=1, correction={"logprobs_mode": served}, resume=False)()
    assert right.metrics()[0]["mismatch/max_abs"] < 1e-5


# docs: troubleshooting.md Staleness of twice the setting
def test_staleness_is_measured_and_bounded(make, api):
    def batch(k):
        return [make_group(2 * k, version=7), make_group(2 * k + 1, version=3), make_group(99, version=None)]

    w = make(api(batch=batch).url, steps=1, policy_version=8, data={"max_staleness": 2})()
    (m,) = w.metrics()
    assert m["staleness/histogram"] == {"1": 1, "5": 1} and m["staleness/unknown_groups"] == 1
    assert m["staleness/dropped_groups"] == 1 and m["groups/count"] == 2


def test_equal_scores_with_overrides_are_kept(make, api):
    def batch(k):
        groups = [make_group(j) for j in range(3)]
        groups[0]["scores"] = groups[1]["scores"] = [1.0] * 4
        groups[1]["advantages"] = [[0.5]] * 4
        return groups

    w = make(api(batch=batch).url, steps=1, advantages={"drop_equal_scores": True})()
    (m,) = w.metrics()
    assert m["groups/equal_dropped"] == 1 and m["groups/count"] == 2 and m["adv/override_frac"] > 0


def test_missing_overrides_name_the_environment(make, api):
    w = make(api().url, advantages={"fallback_to_grpo": False})
    with pytest.raises(errors.DataError, match="env_id 0"):
        w()


def test_spool_forgets_what_a_checkpoint_covers(tmp_path):
    s = Spool(tmp_path / "spool", -1)
    for k in range(4):
        s.put(k, "lease", Encoded("json", json.dumps({"batch": [{"k": k}]}).encode()))
        assert s.pending() == (k, "lease")
        s.acked(k)
    s.covered(1)
    s.refuse(3)
    assert [s.get(k) for k in range(4)] == [None, None, ([{"k": 2}], None), ([], None)]
    before = {"number": 4, "lease": None, "groups": [{"k": 4}]}  # as versions before this one wrote it
    (tmp_path / "spool" / "00000004.json").write_text(json.dumps(before))
    assert s.get(4) == ([{"k": 4}], None)


# ---- the process itself ----


def start(tmp_path, given):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(given))
    path.chmod(0o600)
    return processes.start(processes.worker, str(path))


def test_a_killed_process_resumes_exactly(make, api, tmp_path, tiny):
    """kill -9 in the middle, start again, SIGTERM, start again: the losses are those of an unbroken run."""
    unbroken = make(api().url, where=tmp_path / "unbroken", steps=7)()
    server, where = api(), tmp_path / "killed"
    where.mkdir()
    supervisor = Supervisor()
    given = settings(where, tiny, server.url, steps=7, control=supervisor.address, control_token="abc", threads=1)

    def until(process, step):
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.is_alive():
            if os.path.exists(where / "events.jsonl"):
                text = (where / "events.jsonl").read_text()
                if f'"type": "progress", "step": {step}' in text:
                    return
            time.sleep(0.02)
        raise AssertionError(f"step {step} was not reached; exit status {process.exitcode}")

    first = start(tmp_path, given)
    until(first, 3)
    first.kill()
    first.join()
    kept = newest(
        where / "checkpoints"
    )  # of step 2; a step takes milliseconds, so it may have made that of step 4, too
    assert kept.name in ("step_2", "step_4")
    supervisor.ready.clear()
    second = start(tmp_path, {**given, "wait_for_sync": True, "policy_version": 3})
    # After a resume inference first gets these weights.
    assert supervisor.wanted("sync") == {"step": int(kept.name[5:])} and supervisor.hellos[-1]["pid"] == second.pid
    assert supervisor.call("publish", {"version": 4, "transport": "none"})[0] == "ok"
    assert supervisor.call("update", {"publish_every": 100})[0] == "ok"
    supervisor.answer("sync", {"version": 4, "shared": False})
    until(second, 5)
    os.kill(second.pid, signal.SIGTERM)
    assert processes.finish(second, 300) == 0
    assert any(e["type"] == "checkpoint" for e in supervisor.events), "the supervisor hears what the file says"
    supervisor.close()
    assert newest(where / "checkpoints").name >= "step_5"
    rest = make(server.url, where=where, steps=7)()
    assert rest.bridge.resumed or rest.bridge.step == 7
    by_step = {}
    for line in (where / "events.jsonl").read_text().splitlines():
        e = json.loads(line)
        if e["type"] == "metric":
            by_step.setdefault(e["step"], set()).add(e["metrics"]["loss/total"])
    assert {k: list(v) for k, v in by_step.items()} == {k + 1: [x] for k, x in enumerate(losses(unbroken))}
    assert server.acked == list(range(7))


def wait_until(value):
    """Waits for a value and returns it."""
    deadline = time.monotonic() + 300
    while not value() and time.monotonic() < deadline:
        time.sleep(0.01)
    return value()


def test_a_ranks_failure_reaches_the_supervisor(tmp_path, tiny, monkeypatch):
    (tmp_path / "checkpoints" / "step_3").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step_3" / MARKER).touch()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    supervisor = Supervisor()
    control = {"control": supervisor.address, "control_token": "abc"}
    given = settings(tmp_path, tiny, "http://unused", resume=False, **control)
    assert work(config.from_dict(given)) == 1
    assert wait_until(lambda: supervisor.events)[0]["code"] == "checkpoint" and supervisor.hellos[0]["rank"] == 1
    supervisor.close()
    (event,) = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert (event["type"], event["code"]) == ("error", "checkpoint") and event["checks"]


INTERRUPTED = """
import signal, time
from recipe_sdk.control import Command, Control
control = Control()
signal.signal(signal.SIGALRM, lambda *_: control.commands.put(Command("stop", {})))
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
end = time.monotonic() + 1
while time.monotonic() < end:
    control.commands.empty()
    control.next(0)
signal.setitimer(signal.ITIMER_REAL, 0)
control.close()
"""


def test_a_signal_is_heard_whatever_the_loop_is_doing():
    """Its handler runs between any two lines, also where the loop holds a lock of the queue."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], env=env, timeout=600, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_a_wrong_configuration_starts_nothing(tmp_path, monkeypatch, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model": {"path": "x"}, "data": {"url": "u"}, "stepz": 3}))
    for option in ("--config", "--check"):
        monkeypatch.setattr(sys, "argv", ["worker", option, str(path)])
        assert command_line() == 2
        assert "did you mean steps?" in capsys.readouterr().err


def test_a_check_prints_what_is_decided(tmp_path, monkeypatch, capsys):
    path = tmp_path / "config.json"
    for given, want in (
        ({}, {"loss.name": "ppo", "loss.aggregation": "token-mean", "correction.importance": "token",
              "reference.source": "copy", "model.device": "cpu", "model.dtype": "float32"}),
        ({"loss": {"name": "dr_grpo"}, "lora": {"rank": 8}, "data": {"max_response_length": 512}},
         {"loss.aggregation": "batch-sum-norm", "loss.length_norm": 512.0, "reference.source": "lora_off"}),
        ({"correction": {"old_policy": "rollout"}, "kl": {"coefficient": 0.0}},
         {"correction.importance": "none", "reference.source": "none"}),
    ):  # fmt: skip
        data = {"url": "http://localhost", **given.get("data", {})}
        path.write_text(json.dumps({"model": {"path": "x", "device": "cpu"}, **given, "data": data}))
        monkeypatch.setattr(sys, "argv", ["worker", "--check", str(path)])
        assert command_line() == 0
        printed = json.loads(capsys.readouterr().out)
        assert want.items() <= printed.items()
        assert "auto" not in printed.values() and None not in printed.values()
