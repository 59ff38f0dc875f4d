"""What is done while inference starts."""

import pytest

from worker import compiled, config, early


@pytest.mark.parametrize(
    ("wanted", "reason", "starts"), [(None, "", 1), (None, "no GPU", 0), (True, "no GPU", 1), (False, "", 0)]
)
def test_the_compiler_starts_early_where_it_will_be_used(monkeypatch, wanted, reason, starts):
    from torch._inductor.async_compile import AsyncCompile

    begun = []
    monkeypatch.setattr(AsyncCompile, "warm_pool", lambda: begun.append(1))
    monkeypatch.setattr(compiled, "unavailable", lambda device: reason)
    early.compiler(config.from_dict({"model": {"path": "x", "compile": wanted}, "data": {"url": "u"}}))
    assert len(begun) == starts
