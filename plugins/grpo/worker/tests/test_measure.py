"""Metrics say how they are reduced, over micro-batches and over ranks that may have had no work."""

import pytest
import torch

from worker.loss import LOSSES, LossOptions
from worker.measure import Totals, maximum, mean, total
from worker.registry import LossSpec, Registry, Result, Terms, evaluate, loss

CPU = torch.device("cpu")


class Ranks:
    """The values of `others` (Totals) are added, as if they were further ranks."""

    def __init__(self, *others):
        self.others = others

    def gather(self, value):
        return [value, *(o.names for o in self.others)]

    def sum_by_host(self, x):
        for o in self.others:
            if o.sums is not None:
                x = x + torch.cat([o.sums, torch.tensor(o.counts, dtype=torch.float64)])
        return x

    def max_by_host(self, x):
        for o in self.others:
            if o.sums is not None:
                x = torch.maximum(x, o.maxima)
        return x


def metrics(x):
    x = torch.tensor(x)
    return {"total": total(x), "mean": mean(x), "share": mean(x > 0), "most": maximum(x)}


def test_each_metric_is_reduced_as_it_says():
    here, there, idle = Totals(CPU), Totals(CPU), Totals(CPU)
    here.add(metrics([1.0, -2.0]))
    here.add(metrics([-3.0]))
    there.add(metrics([4.0]))
    assert here.reduce(Ranks()) == pytest.approx({"total": -4.0, "mean": -4 / 3, "share": 1 / 3, "most": 1.0})
    want = {"total": 0.0, "mean": 0.0, "share": 0.5, "most": 4.0}
    assert here.reduce(Ranks(there, idle)) == pytest.approx(want)
    assert idle.reduce(Ranks(here, there)) == pytest.approx(want), "a rank without work reports the same"
    assert Totals(CPU).reduce(Ranks()) == {}, "nobody had work"


def test_a_maximum_of_nothing_is_left_out():
    t = Totals(CPU)
    t.add(metrics([]))
    assert t.reduce(Ranks()) == {"total": 0.0, "mean": 0.0, "share": 0.0}


def test_metrics_that_come_and_go_are_refused():
    t = Totals(CPU)
    t.add({"a": total(torch.ones(1))})
    with pytest.raises(ValueError, match="differ between micro-batches"):
        t.add({"b": total(torch.ones(1))})


def terms(n=3):
    x = torch.linspace(-2, -1, n, dtype=torch.float64)
    return Terms(x.clone().requires_grad_(), x, torch.ones(n, dtype=torch.float64), torch.zeros(n, dtype=torch.long), 1)


@pytest.mark.parametrize("returned,message", [
    (lambda t, o: 3.0, "expected a Result or a tensor, got float"),
    (lambda t, o: t.lp.sum(), r"one value a token, shape \(3,\), got shape \(\)"),
    (lambda t, o: Result(t.lp, {"x": t.lp.mean()}), "metric 'x': expected mean"),
])  # fmt: skip
def test_what_a_loss_may_not_return(returned, message):
    spec = loss("mine")(returned).loss
    with pytest.raises((TypeError, ValueError), match=message):
        evaluate(spec, terms(), LossOptions())


def test_the_weight_is_multiplied_once():
    t = terms()
    t.weight = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    plain = loss("plain")(lambda t, o: -t.lp).loss
    own = loss("own", weight="own")(lambda t, o: -t.lp).loss
    assert torch.equal(evaluate(plain, t, None).value, -t.lp * t.weight)
    assert torch.equal(evaluate(own, t, None).value, -t.lp)


def test_every_loss_describes_itself():
    for name, spec in LOSSES.specs.items():
        assert isinstance(spec, LossSpec) and spec.name == name and (spec.function.__doc__ or "").strip(), name


@pytest.mark.parametrize("wrong", [{"ratio": "word"}, {"against": "me"}, {"needs": ("luck",)}, {"weight": "heavy"}])
def test_a_decorator_refuses_what_nobody_reads(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected"):
        loss("x", **wrong)


def test_two_functions_of_one_name_are_refused():
    with pytest.raises(ValueError, match="loss 'x' is defined twice"):
        Registry("loss", {"a": loss("x")(lambda t, o: None), "b": loss("y", aliases=("x",))(lambda t, o: None)})
