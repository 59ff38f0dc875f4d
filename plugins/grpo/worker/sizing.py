"""How a step runs on this machine: settings that were left open are decided from the memory that is free.

That is looked at when the first batch is there, not earlier, because inference on the same GPU may start after the
trainer. When it still was too much, `step_down` finds the next smaller way."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from recipe_sdk.ranks import Ranks

from . import auto, compiled, host, offload, packing, recompute
from .batch import Batch
from .config import Config
from .model import Policy, decided, keep_gathered


def free_memory(device: torch.device) -> float:
    """Bytes that this process can still use on its device."""
    if device.type != "cuda":
        return host.available()
    free, _ = torch.cuda.mem_get_info(device)
    return float(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


SPARED = 0.03  # of what is free on a GPU: never taken
NEAR, LOOSE = 0.9, 0.05  # of what this process may take: see Sizing.give_back


def spare_memory(device: torch.device) -> float:
    """Leaves some of what is free to a server on the same GPU, which takes more while it answers: the bytes that this
    process may take, infinite where nothing limits it. torch keeps freed blocks and would take all in time; at the
    limit it gives them back first. Seen on an H200: 139.5 of 140.4 GiB taken beside SGLang, 71 of them in use at once
    by the trainer."""
    if device.type != "cuda":
        return math.inf
    free, total = torch.cuda.mem_get_info(device)
    most = torch.cuda.memory_reserved(device) + (1 - SPARED) * free
    torch.cuda.set_per_process_memory_fraction(min(most / total, 1.0), device)
    return most


def in_use(device: torch.device) -> str:
    """What a device's memory was used for when it ran out, as the end of a sentence."""
    if device.type != "cuda":
        return ""
    allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    free, _ = torch.cuda.mem_get_info(device)
    return (
        f" ({allocated / auto.GIB:.1f} GiB were in use, {(reserved - allocated) / auto.GIB:.1f} more kept by torch, "
        f"{free / auto.GIB:.1f} free)"
    )


def settings(c: Config, device: torch.device) -> auto.Settings:
    """The configuration's part in the decision, with the precision decided."""
    m = decided(c, device).model
    return auto.Settings(m.dtype, m.compute_dtype, m.compile, m.gradient_checkpointing, m.row_tokens, m.head_chunk)


class Sizing:
    """The choice in force for one policy (and its reference)."""

    def __init__(self, policy: Policy, copy: Policy | None, optimizer: Any, ranks: Ranks):
        self.policies = [policy, *([copy] if copy is not None else [])]
        self.optimizer, self.ranks = optimizer, ranks
        self.choice: auto.Choice | None = None
        self.fitted: auto.Choice | None = None  # the last one by which a batch was trained
        self.open = False  # whether anything was left to decide
        self.limit = math.inf  # bytes that this process may take of its device
        self.peak = 0.0  # most bytes that a batch had in use
        self.steps_down = 0
        self.whole_gradients = False  # whether ranks sum gradients once for all rows
        # why nothing is compiled that nobody has asked for
        self.uncompiled = "its layers carry a state" if packing.carries_state(policy.causal) else ""
        self.graphs = 0  # compiled before the last report
        parameters = list(policy.parameters())
        share = ranks.world if policy.sharded else 1
        self.shape = auto.shape_of(
            policy.causal.config, sum(p.numel() for p in parameters) // share,
            sum(p.numel() // (share if offload.sharded(p) else 1) for p in parameters if p.requires_grad),
        )  # fmt: skip

    def warming(self) -> float:
        """Bytes that compiling takes by the choice in force: a row through a layer of each kind and the head, with
        their gradients."""
        assert self.choice is not None
        x, policy = self.choice, self.policies[0]
        with compiled.one_of_each(policy.backbone, x.recomputed):
            few = list(policy.backbone.layers)
        others = {id(p) for layer in policy.backbone.layers if layer not in few for p in layer.parameters()}
        gradients = sum(p.numel() * p.element_size() for p in policy.parameters()
                        if p.requires_grad and id(p) not in others)  # fmt: skip
        one = replace(self.shape, layers=len(few))
        kept = auto.activations(one, self.given, 0, False, x.compile, sum(compiled.lengths(x.row_tokens)))
        return kept + auto.head(one, self.given, x.compile, x.head_chunk) + gradients

    def decide(self, c: Config, b: Batch | None) -> str:
        """Decides for batches like this one; the reason, or "" when nothing was left open and nothing changes."""
        given = settings(c, self.ranks.device)
        self.limit = spare_memory(self.ranks.device)
        self.given, self.machine = given, self.look(c, given, b)
        self.open = None in (given.compile, given.gradient_checkpointing, given.row_tokens, given.head_chunk)
        choice = self.choose()
        if b is None and choice.needed > auto.USABLE * self.machine.free:
            self.machine = replace(self.machine, longest=0)  # no sequence of max_length fits: shorter ones will come
            choice = self.choose()
        self.use(choice)
        if not self.open:
            return ""
        why = f" ({self.uncompiled})" if self.uncompiled and not self.choice.compile else ""
        return self.choice.reason + why

    def choose(self) -> auto.Choice:
        """The choice for the machine as it was seen; of ranks that share a model, with what each keeps of it."""
        if not self.policies[0].sharded:
            return auto.choose(self.shape, self.given, self.machine)
        choice, gathered, self.whole_gradients = auto.choose_sharded(
            self.shape, self.given, self.machine, self.ranks.world
        )
        keep_gathered(self.policies[0], gathered)
        return choice

    def outgrown(self, b: Batch) -> bool:
        """Whether a batch is so much larger than the one that was decided for that it is worth deciding again."""
        if self.choice is None:
            return True
        longest = max((len(t) for t in b.tokens), default=0)
        return longest > max(self.choice.row_tokens, self.machine.longest) or (
            -(-b.total_tokens // self.ranks.world) > 2 * max(self.machine.batch_tokens, self.choice.row_tokens)
            and self.choice.row_tokens < auto.ROWS[0]
            and self.steps_down == 0
            and self.machine.batch_tokens < auto.ROWS[0]
        )

    def look(self, c: Config, given: auto.Settings, b: Batch | None) -> auto.Machine:
        """The machine as it is; the same on every rank. Before there is a batch, sequences of max_length are expected:
        long ones may have to be trained by other compiled code than short ones."""
        device, world = self.ranks.device, self.ranks.world
        # What inference reads: a copy with adapters merged in, unless it is what trains and has come already.
        policy = self.policies[0]
        published = bool(c.lora.rank) and c.wait_for_sync and (bool(policy.sharded) or not policy.merged)
        coming = auto.fixed(
            self.shape, given, c.optimizer.name, published, c.optimizer.offload and device.type != "cpu"
        )
        here = sum(offload.local(t).numel() * t.element_size() for s in self.optimizer.state.values()
                   for t in s.values() if isinstance(t, torch.Tensor) and t.device.type == device.type)  # fmt: skip
        seen = (free_memory(device), not (self.uncompiled or compiled.unavailable(device)), here)
        everywhere = self.ranks.gather(seen)
        longest = max((len(t) for t in b.tokens), default=0) if b else c.data.max_length
        tokens = -(-b.total_tokens // world) if b else 0
        limit = self.policies[0].longest_row(longest)
        return auto.Machine(
            free=min(f for f, _, _ in everywhere), compiler=all(k for _, k, _ in everywhere), longest=longest,
            batch_tokens=min(tokens, limit) if limit else tokens,
            fixed=max(coming - min(h for _, _, h in everywhere), 0.0), by_layer=recompute.by_layer(policy.backbone),
            attention=policy.implementation == "varlen",
        )  # fmt: skip

    def room(self, head: bool = True) -> float:
        """Bytes that something may take of the device while rows are trained: what is free, but for what the next layer
        takes, recomputed or not, with its gradients, and what lies in pieces that are too small. head: the head is to
        come, too."""
        if self.choice is None or self.ranks.device.type != "cuda":
            return 0.0
        x, width = self.choice, auto.WIDTH[self.given.dtype]
        layer = auto.activations(replace(self.shape, layers=1), self.given, 0, False, x.compile, x.row_tokens)
        apart = 2 * layer + width * self.shape.trained / self.shape.layers + LOOSE * self.limit
        apart += head * auto.head(self.shape, self.given, x.compile, x.head_chunk)
        return self.limit - torch.cuda.memory_allocated(self.ranks.device) - apart

    def row_tokens(self, c: Config) -> int:
        """Most tokens of a row, also before anything was decided."""
        return self.choice.row_tokens if self.choice else c.model.row_tokens or 8192

    def use(self, choice: auto.Choice) -> None:
        """Makes the models run this way."""
        self.choice = choice
        for policy in self.policies:
            policy.run_as(choice)

    def refuse_compiler(self, why: str) -> None:
        """From now on nothing is compiled, because it has failed."""
        self.uncompiled = f"torch.compile failed: {why}"
        self.choice = None

    def give_back(self) -> None:
        """Between two batches, when little is in use: gives back what torch keeps, if that nears the limit and is more
        than a batch has ever needed. What is too much are pieces that rows of other lengths have left: each is too
        small for the next row, and torch can give back only those that nothing else lies beside. Seen on an H100: out
        of memory with 32.9 GiB in use, 11.2 more kept and 1.3 free."""
        device = self.ranks.device
        if device.type != "cuda":
            return
        kept = torch.cuda.memory_reserved(device)
        if kept > NEAR * self.limit and kept - self.peak > LOOSE * self.limit:
            torch.cuda.empty_cache()

    def fits(self) -> None:
        """A batch was trained by the choice in force."""
        self.fitted = self.choice
        if self.ranks.device.type == "cuda":
            self.peak = max(self.peak, float(torch.cuda.max_memory_allocated(self.ranks.device)))

    def once_more(self) -> str:
        """After the device ran out of memory: why the choice is tried once more; "" when it has never fitted."""
        if self.choice is None or self.choice is not self.fitted or self.ranks.world > 1:
            return ""
        return "out of memory in a way that has fitted before; once more, with what torch keeps given back"

    def step_down(self) -> str:
        """After the device ran out of memory: the next smaller way, and why; "" when there is none to choose."""
        if not self.open or self.choice is None or self.ranks.world > 1:
            return ""
        less = auto.choose(self.shape, self.given, self.machine, below=self.choice)
        if not auto.smaller(self.choice, less):
            return ""
        self.steps_down += 1
        self.use(less)
        return less.reason

    def report(self) -> dict[str, float]:
        """The choice as metrics; compiled graphs are those since the last report."""
        choice = self.choice
        if choice is None:
            return {}
        now = compiled.count() if choice.compile else self.graphs
        out = {
            "compute/row_tokens": float(choice.row_tokens), "compute/head_chunk": float(choice.head_chunk),
            "compute/checkpointing": choice.recomputed / self.shape.layers, "compute/compiled": float(choice.compile),
            "compute/compilations": float(now - self.graphs), "compute/steps_down": float(self.steps_down),
        }  # fmt: skip
        self.graphs = now
        return out
