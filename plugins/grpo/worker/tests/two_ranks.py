"""One of the ranks of test_two_ranks_take_the_same_step_as_one; started as torchrun would."""

import os
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import safetensors.torch
import torch
from recipe_sdk import Checkpoint, causal, publish
from recipe_sdk.checkpoint import newest, read_state
from recipe_sdk.control import Command, Control
from recipe_sdk.errors import WorkerError
from recipe_sdk.feed import Feed
from recipe_sdk.ipc import Shared
from recipe_sdk.ranks import Ranks, pieces

from worker import checkpoint, compiled, offload, sizing
from worker.batch import build
from worker.model import reshard
from worker.spread import check_equal
from worker.tests.conftest import attached
from worker.weights import merged


def full_disk(ranks: Ranks, s, directory: str) -> None:
    """Only rank 0 writes. If writing fails, or memory runs out, the others must not wait for it."""

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    bridge = attached(s)
    bridge.step = 1

    def save():
        bridge.save("asked")

    def send(transport, where="served"):
        return publish.publish(bridge, {"version": 1, "transport": transport, "dir": f"{directory}/{where}"})

    if ranks.main:
        Path(directory, "file").touch()
        safetensors.torch.save_file, kept = full, safetensors.torch.save_file
        os.memfd_create, memfd = full, os.memfd_create
    for action, everybody in ((lambda: send("reload"), False), (lambda: send("reload", "file/below"), True),
                              (lambda: send("ipc"), True), (save, True)):  # fmt: skip
        try:
            action()
            problem = None
        except WorkerError as e:
            problem = e
        assert (problem is not None) == (ranks.main or everybody), problem
        assert problem is None or problem.checks
    if ranks.main:
        safetensors.torch.save_file, os.memfd_create = kept, memfd
    assert send("reload")["step"] == 1


def settles(ranks: Ranks, s) -> None:
    """Weights change on no rank before rank 0 has heard that inference serves them."""
    bridge, began = attached(s), time.monotonic()
    bridge.ahead = True
    if ranks.main:
        control = Control()
        bridge.feed = Feed(bridge.block, bridge.events, control, SimpleNamespace())
        bridge.feed.sync, bridge.feed.ahead = (began, 1), True
        served = Command("synced", {"version": 7, "shared": False})
        threading.Timer(0.3, control.commands.put, [served]).start()
    bridge.settle()
    assert time.monotonic() - began > 0.2 and bridge.version == 7 and not bridge.ahead


def means(ranks: Ranks) -> None:
    """Of tensors that do not travel together, because of their size or their precision; one is larger than a piece."""
    kinds = (torch.float32, torch.float32, torch.float64, torch.float32, torch.float32)
    made = [torch.full((k + 1, 3), float(k + 10 * ranks.rank), dtype=d) for k, d in enumerate(kinds)]
    assert [len(p) for p in pieces(made, 20)] == [1, 1, 1, 1, 1] and [len(p) for p in pieces(made, 200)] == [2, 1, 2]
    for most in (20, 200):
        there = [x.clone() for x in made]
        ranks.mean(there, most)
        assert all(torch.equal(x, torch.full_like(x, k + 5.0)) for k, x in enumerate(there))


def come_apart(ranks: Ranks, s) -> None:
    """A rank whose weights are others is told of, by all."""
    kept = s.parameters[0].detach().clone()
    s.parameters[0].data[0] += ranks.rank
    try:
        check_equal(s.policy, ranks)
    except WorkerError as e:
        assert "rank 1 holds other weights than rank 0" in e.message and e.checks
    else:
        raise AssertionError("different weights were taken for equal")
    s.parameters[0].data.copy_(kept)


def kept_gathered(s, groups) -> bool:
    """Whether a layer's weights are whole after a forward pass; `reshard` gives them back."""
    with torch.no_grad():
        s.policy(s.rows(build(groups), [0])[0][0])
    layer = s.policy.backbone.layers[0]
    kept = not hasattr(next(layer.parameters()), "full_tensor")
    reshard(s.policy)
    assert hasattr(next(layer.parameters()), "full_tensor")
    return kept


def recomputed(ranks: Ranks, directory: str, path: str) -> None:
    """Shards whose layers are compiled, where they recompute or keep products only, make the steps of plain ones. With
    adapters only the latter: compiling takes nearly all of this test's time, on each rank."""
    from worker.tests.test_model import after_steps, stepper

    layers, few = compiled.layers, [False]
    compiled.layers = lambda model, n, attention, products: layers(model, n, attention, products or few[0], "aot_eager")
    plain, recompute, products = (False, False, False), (True, True, False), (False, True, True)
    for change, ways in (({}, (plain, recompute, products)), ({"lora": {"rank": 4}}, (plain, products))):
        found = []
        for again, compile, few[0] in ways:
            model = {"replicate": False, "gradient_checkpointing": again, "compile": compile}
            s = stepper(Path(directory), path, ranks, model=model, **change)
            found.append(after_steps(s, 3))
            assert s.policy.sharded and (s.policy.compiled, s.policy.recomputed) == (compile, 2 * again)
        losses, want = found[0]
        for others, got in found[1:]:
            assert losses == others and all(torch.equal(want[n], got[n]) for n in want)


def other_setting(ranks: Ranks, s, again, found: Checkpoint, directory: str, path: str) -> None:
    """Shards whose moments are in the host's memory: what they saved, shards on the device load, and the other way."""
    from worker.tests.test_model import after_steps, stepper

    assert all(isinstance(x.optimizer, offload.AdamW) and x.optimizer.pieces for x in (s, again))
    plain = stepper(Path(directory), path, ranks, model={"replicate": False})
    checkpoint.load_training(found, plain.policy, plain.optimizer, ranks.rank, True, "adamw")
    stored = checkpoint.optimizer_state(plain.policy, plain.optimizer, True)
    own = checkpoint.optimizer_state(s.policy, s.optimizer, True)
    assert bool(own) == bool(stored) == ranks.main  # the others take part and are given nothing
    for name, state in own.get("state", {}).items():
        assert all(torch.equal(value, stored["state"][name][k]) for k, value in state.items())
    with torch.no_grad():
        for x in (plain, again):
            for mine, theirs in zip(x.parameters, s.parameters, strict=True):
                mine.to_local().copy_(theirs.to_local())
    (losses, want), (others, got) = after_steps(plain, 2), after_steps(again, 2)
    assert losses == others and all(torch.equal(want[n], got[n]) for n in want)


def main(rank: int, port: int, models: dict[str, str], directory: str, out: str) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=str(port))  # fmt: skip
    from worker.tests.test_model import after_steps, groups, of_ranks, stepper

    torch.set_num_threads(1)
    ranks = Ranks(torch.device("cpu"))
    offload.AdamW.__init__.__kwdefaults__["piece"] = 4096  # so that parameters are cut
    results, free = {}, sizing.free_memory
    for name, path in models.items():
        short = name == "clipped"  # of memory, so that each layer's weights are given back after its forward pass
        sizing.free_memory = (lambda _: 0.0) if short else free
        s = stepper(Path(directory), path, ranks, **of_ranks(name))
        assert bool(s.policy.sharded) != name.startswith("whole ")
        # shards of an odd number of rows differ in size, and what is decided by them must not
        assert len(set(ranks.gather(s.sizing.shape))) == 1
        results[name] = after_steps(s)
        assert not s.policy.sharded or kept_gathered(s, groups(1)) != short
        check_equal(s.policy, ranks)

        def proof(s=s):
            """Calls of a sync block between publications; they must not affect what follows."""
            return publish.logprobs(attached(s), {"token_ids": [3, 14, 15, 9]})["logprobs"]

        proved = proof()
        shared = Shared()  # inference loads whole tensors, whatever shards the ranks hold
        told = shared.refresh(partial(merged, s.policy), ranks.device, 1, None, True, None, ranks.main)
        assert bool(told) == ranks.main
        if ranks.main:
            results[name] += ({n: t.clone() for n, t in shared.tensors.items()}, proved)
        bridge = attached(s, checkpoint_dir=f"{directory}/{name}")
        bridge.step = 2
        assert proof() == proved
        bridge.save("asked")
        again = stepper(Path(directory), path, ranks, **of_ranks(name))  # sharded state goes into fresh shards
        found = newest(f"{directory}/{name}")
        checkpoint.load_training(
            Checkpoint(found, 2, read_state(found)),
            again.policy,
            again.optimizer,
            ranks.rank,
            bool(s.policy.sharded),
            s.config.optimizer.name,
        )
        for a, b in zip(s.optimizer.state.values(), again.optimizer.state.values(), strict=True):
            assert torch.equal(causal.whole(a["exp_avg"]), causal.whole(b["exp_avg"]))
        shape = again.sizing.shape
        if shape.trained == shape.parameters:
            # this rank's share of the moments is there already, and the gradients of its share of weights are to come
            coming = again.sizing.look(again.config, sizing.settings(again.config, ranks.device), None).fixed
            assert coming > 0.9 * shape.trained * next(again.policy.parameters()).element_size(), (name, coming, shape)
        if name.endswith("clipped"):
            settles(ranks, s)
            full_disk(ranks, s, f"{directory}/{name}")
        if name == "offloaded":
            other_setting(ranks, s, again, Checkpoint(found, 2, read_state(found)), directory, path)
    means(ranks)
    come_apart(ranks, s)
    recomputed(ranks, directory, path)
    for name in ("adafactor", "adamw_8bit"):  # otherwise the first step fails in torch's sharding
        try:
            stepper(Path(directory), path, ranks, optimizer={"name": name}, model={"replicate": False})
        except WorkerError as e:
            assert f"{name} cannot work on weights that are spread" in e.message and e.checks
        else:
            raise AssertionError(f"{name} was taken")
    if ranks.main:
        torch.save(results, out)
    ranks.close()
