"""Rows of several sequences, by family: packed where the model keeps them apart, one by one where it does not."""

import pytest
import torch
import transformers

from worker import attention, batch, model, packing
from worker.lora import ModelError

from .test_model import groups, stepper

SIZES = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "eos_token_id": 2, "bos_token_id": 1, "head_dim": 8,
}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
HYBRID = {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 4, "linear_num_key_heads": 2,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "shared_expert_intermediate_size": 16,
}  # fmt: skip
APART = {
    "llama": transformers.LlamaConfig(**SIZES),
    "sliding": transformers.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=0),
    "experts": transformers.Qwen3MoeConfig(**SIZES, **EXPERTS),
    "soft cap": transformers.Gemma2Config(**SIZES, attn_logit_softcapping=1.0, query_pre_attn_scalar=8),
}
MIXED = {
    "delta rule": transformers.Qwen3NextConfig(**SIZES, **EXPERTS, **HYBRID),
    "mamba": transformers.MambaConfig(vocab_size=61, hidden_size=32, state_size=4, num_hidden_layers=2),
}


def saved(folder, config):
    """A model of random weights on disk, far enough from zero for its layers to matter."""
    torch.manual_seed(3)
    made = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, p in made.named_parameters():
            if p.dim() > 1 and "norm" not in name and "A_log" not in name:
                p.normal_(std=0.3)
    made.save_pretrained(folder)
    return str(folder)


def scored_alone(s, b):
    """Log-probabilities of each sequence by the model itself, without any row of ours."""
    out = []
    for tokens, positions in zip(b.tokens, b.positions, strict=True):
        logits = s.policy.causal(tokens[None], use_cache=False).logits[0].detach().double().log_softmax(-1)
        out.append(logits[positions - 1, tokens[positions]])
    return torch.cat(out)


@pytest.mark.parametrize("name", [*APART, *MIXED])
def test_a_family_is_scored_as_its_sequences_are_alone(tmp_path, name):
    path = saved(tmp_path / "model", {**APART, **MIXED}[name])
    s = stepper(tmp_path, path, model={"dtype": "float32"})
    assert s.policy.alone == (name in MIXED)
    b = batch.build(groups())
    rows = [row for row, _ in s.rows(b, range(b.n))]
    trained = sum(bool(len(p)) for p in b.positions)
    assert len(rows) == trained if name in MIXED else len(rows) < trained
    s.policy.eval()
    assert torch.allclose(s.scores(s.policy, b)["lp"].double(), scored_alone(s, b), atol=1e-4)
    s.policy.alone = False
    together = s.scores(s.policy, b)["lp"].double()
    assert torch.allclose(together, scored_alone(s, b), atol=1e-4) == (name in APART), "the check says otherwise"


def test_why_a_row_has_one_sequence_is_said(tmp_path):
    path = saved(tmp_path / "model", MIXED["delta rule"])
    s = stepper(tmp_path, path, model={"dtype": "float32"})
    why = model.keep_apart(s.policy, torch.device("cpu"))
    assert "each row has one sequence" in why and "change by" in why
    assert "carry a state" in s.sizing.decide(s.config, batch.build(groups()))


def test_a_mixing_teacher_gets_rows_of_one_sequence(tmp_path, tiny):
    teacher = saved(tmp_path / "model", MIXED["delta rule"])
    s = stepper(tmp_path, tiny, kl={"coefficient": 0.1}, reference={"path": teacher}, model={"dtype": "float32"})
    assert s.policy.alone and "each row has one sequence" in s.reference.apart
    assert not stepper(tmp_path, tiny, kl={"coefficient": 0.1}).reference.apart


@pytest.mark.parametrize("name", [*APART, *MIXED])
def test_stateful_layers_are_compiled_only_on_request(name):
    with torch.device("meta"):
        made = transformers.AutoModelForCausalLM.from_config({**APART, **MIXED}[name])
    assert packing.carries_state(made) == (name in MIXED)


class Pooled(torch.nn.Module):
    """A policy whose scores change with other tokens of the row: `after` by those behind, `before` by those ahead."""

    def __init__(self, before, after):
        super().__init__()
        self.before, self.after = before, after

    def forward(self, row):
        ids = row.ids[0].double() / 61
        first, last = ids[: packing.LENGTHS[0]].mean(), ids[packing.LENGTHS[0] :].mean()
        own = torch.zeros(len(row.label), dtype=torch.float64)
        cut = packing.LENGTHS[0] - 1
        own[:cut] += self.after * last
        own[cut:] += self.before * first
        return type("Scores", (), {"lp": own})


@pytest.mark.parametrize(
    ("before", "after", "mixes"), [(0, 0, False), (1, 1, False), (1e-9, 0, False), (1, 0, True), (1, 1e-3, True)]
)
def test_mixing_is_told_from_rounding(before, after, mixes):
    assert bool(packing.mixed(Pooled(before, after), 61, torch.device("cpu"))) == mixes


def test_nan_does_not_count_as_kept_apart():
    assert packing.mixed(Pooled(float("nan"), 0), 61, torch.device("cpu"))


# ---- which kernel ----

GPU, BF16 = torch.device("cuda"), torch.bfloat16


@pytest.fixture
def flash(monkeypatch):
    """Says whether flash-attn 2 is there."""
    return lambda there: monkeypatch.setattr("transformers.utils.is_flash_attn_2_available", lambda: there)


@pytest.mark.parametrize(
    ("name", "installed", "want"),
    [
        ("llama", False, "varlen"), ("llama", True, "flash_attention_2"), ("soft cap", False, "eager"),
        ("soft cap", True, "flash_attention_2"), ("sinks", False, "eager"), ("sinks", True, "eager"),
    ],
)  # fmt: skip
def test_a_kernel_leaves_nothing_of_a_family_out(flash, name, installed, want):
    flash(installed)
    config = transformers.GptOssConfig() if name == "sinks" else APART[name]
    assert attention.choose("auto", GPU, BF16, config)[0] == want


def test_other_packages_called_flash_attn_are_ignored(monkeypatch):
    """flash-attn 4 has the same folder, and none of the functions."""
    monkeypatch.setattr(attention.importlib.util, "find_spec", lambda name: object())
    assert attention.choose("auto", GPU, BF16, APART["llama"])[0] == "varlen"


@pytest.mark.parametrize("wanted", ["sdpa", "varlen"])
def test_a_kernel_without_the_soft_cap_is_refused(tmp_path, wanted):
    path = saved(tmp_path / "model", APART["soft cap"])
    with pytest.raises(ModelError, match=r"soft cap.*eager"):
        stepper(tmp_path, path, model={"dtype": "float32", "attention": wanted})


def test_varlen_refuses_what_it_does_not_know():
    q = torch.zeros(1, 2, 4, 8)
    with pytest.raises(ValueError, match="s_aux"):
        attention._varlen(None, q, q, q, None, s_aux=torch.zeros(2))
