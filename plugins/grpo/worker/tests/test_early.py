"""What is done while inference starts."""

import pytest
import torch

from worker import compiled, config, early, host, model
from worker.tests.conftest import settings

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("wanted", "reason", "starts"), [(None, "", 1), (None, "no GPU", 0), (True, "no GPU", 1), (False, "", 0)]
)
def test_the_compiler_starts_early_only_if_used(monkeypatch, wanted, reason, starts):
    from torch._inductor.async_compile import AsyncCompile

    begun, keys = [], []
    monkeypatch.setattr(AsyncCompile, "warm_pool", lambda: begun.append(1))
    monkeypatch.setattr("torch._inductor.codecache.torch_key", lambda: keys.append("torch"))
    monkeypatch.setattr("torch._inductor.runtime.triton_compat.triton_key", lambda: keys.append("triton"))
    monkeypatch.setattr(compiled, "unavailable", lambda device: reason)
    early.compiler(config.from_dict({"model": {"path": "x", "compile": wanted}, "data": {"url": "u"}}))
    assert len(begun) == starts and keys == ["torch", "triton"] * starts


@pytest.mark.parametrize("change", [{}, {"lora": {"rank": 4}}], ids=["full", "lora"])
def test_what_was_built_early_has_the_same_numbers(tmp_path, tiny, change):
    c = config.from_dict(settings(tmp_path, tiny, "u", **change))
    ready = early.Early(c, CPU)
    ready.load()
    torch.manual_seed(5)  # what happens meanwhile draws other numbers
    before, after = model.load_policy(c, CPU, ready.take()), model.load_policy(c, CPU)
    assert before[1]["built_early"] and not after[1]["built_early"] and ready.take() is None
    a, b = (dict(x[0].named_parameters()) for x in (before, after))
    assert a.keys() == b.keys() and all(torch.equal(a[n], b[n]) for n in a)
    assert [(n, p.requires_grad, p.dtype) for n, p in a.items()] == [
        (n, p.requires_grad, p.dtype) for n, p in b.items()
    ]


def test_the_device_is_not_touched_early(tmp_path, tiny, monkeypatch):
    """Inference may be measuring its memory: the model is built for it in host memory, in the precision it will have."""

    def touched(*_, **__):
        raise AssertionError("the device was initialized")

    monkeypatch.setattr(torch.cuda, "_lazy_init", touched)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", touched)
    given = settings(tmp_path, tiny, "u", lora={"rank": 4}, model={"dtype": None, "device": "cuda"})
    ready = early.Early(config.from_dict(given), torch.device("cuda", 0))
    ready.load()
    built = ready.take()
    assert {p.device.type for p in built.model.parameters()} == {"cpu"}
    frozen = {p.dtype for p in built.model.parameters() if not p.requires_grad}
    assert frozen == {torch.bfloat16} and built.implementation != "sdpa"


@pytest.mark.parametrize("change", [{"seed": 9}, {"lora": {"rank": 2}}, {"model": {"dtype": "float32"}}])
def test_a_model_for_other_settings_is_built_anew(tmp_path, tiny, change):
    given = settings(tmp_path, tiny, "u", lora={"rank": 4})
    ready = early.Early(config.from_dict(given), CPU)
    ready.load()
    other = config.from_dict(settings(tmp_path, tiny, "u", **{"lora": {"rank": 4}, **change}))
    _, about = model.load_policy(other, CPU, ready.take())
    assert not about["built_early"]
    assert about["dtype"] == other.model.dtype


def test_a_faulty_model_is_reported_at_the_start(tmp_path, tiny):
    c = config.from_dict(settings(tmp_path, tiny, "u", lora={"rank": 4, "target_modules": ["lm_head"]}))
    ready = early.Early(c, CPU)
    ready.load()
    with pytest.raises(model.ModelError, match="lm_head cannot be adapted"):
        model.load_policy(c, CPU, ready.take())


def test_no_model_is_built_early_in_short_memory(tmp_path, tiny, monkeypatch):
    c = config.from_dict(settings(tmp_path, tiny, "u"))
    size = sum(f.stat().st_size for f in early.folder(c).glob("*.safetensors"))
    for free, built in ((4 * size, True), (4 * size - 1, False)):
        monkeypatch.setattr(host, "available", lambda free=free: free)
        ready = early.Early(c, CPU)
        ready.load()
        assert (ready.take() is not None) == built


@pytest.mark.parametrize(
    ("limit", "want"), [(None, 8 << 30), ("max", 8 << 30), (str(6 << 30), 5 << 30), (str(1 << 29), 0)]
)
def test_host_memory_is_limited_by_the_container(tmp_path, limit, want):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {8 << 20} kB\n")
    if limit is not None:
        group = tmp_path / host.CGROUP
        group.mkdir(parents=True)
        (group / "memory.max").write_text(limit + "\n")
        (group / "memory.current").write_text(f"{3 << 30}\n")
        (group / "memory.stat").write_text(f"anon {1 << 29}\nfile {5 << 29}\nshmem {1 << 29}\n")
    assert host.available(str(tmp_path)) == want


def test_a_placed_policy_is_loaded_into_host_memory(tmp_path, tiny):
    """So that no device need hold more of it than its shard."""
    c = config.from_dict(settings(tmp_path, tiny, "u", lora={"rank": 4}, model={"device": "auto"}))
    seen = []

    class Enough(Exception):
        pass

    def place(policy):
        seen.append({p.device.type for p in policy.parameters()})
        raise Enough

    with pytest.raises(Enough):
        model.load_policy(c, torch.device("meta"), None, place)
    assert seen == [{"cpu"}]


def test_every_rank_counts_toward_host_memory(tmp_path, monkeypatch):
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"0" * 1000)
    monkeypatch.setattr(host, "available", lambda: 10_000.0)
    assert early.fits([file])
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert not early.fits([file])


def test_a_loaded_model_checks_its_devices_products(monkeypatch, tmp_path, tiny):
    asked = []
    monkeypatch.setattr(model.products, "check", lambda *given: asked.append(given))
    c = config.from_dict(settings(tmp_path, tiny, "u", model={"path": tiny, "compute_dtype": "bfloat16"}))
    policy, _ = model.load_policy(c, CPU)
    assert asked == [(policy.model, CPU, torch.bfloat16)]
