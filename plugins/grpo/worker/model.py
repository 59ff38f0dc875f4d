"""The policy and its reference: load, adapters, sharding, log-probabilities of packed rows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from recipe_sdk import products
from recipe_sdk.dtypes import DTYPES
from torch import Tensor, nn

from . import attention, auto, compiled, float8, packing, recompute
from .batch import Row
from .config import Config, source_of
from .logprob import HeadOptions, token_logprobs
from .lora import ModelError, adapt
from .merged import Merged
from .teacher import Teacher

__all__ = ["Built", "ModelError", "Policy", "Reference", "Scores", "build", "load_policy", "shard"]


def _plain_mode(module: nn.Module) -> bool:
    """Whether a module's mode, training or not, is no more than a flag."""
    from transformers import PreTrainedModel

    usual = (nn.Module.train, PreTrainedModel.train)
    return type(module).train in usual and not getattr(module, "use_kernels", False)


@dataclass
class Scores:
    """What a forward pass says about a row's scored tokens."""

    lp: Tensor
    entropy: Tensor | None
    squared: Tensor | None


class Policy(nn.Module):
    """A causal language model that answers with log-probabilities of given tokens."""

    def __init__(self, model: nn.Module, implementation: str, head: HeadOptions, autocast: torch.dtype | None):
        super().__init__()
        self.model = model
        self.implementation = implementation
        self.head_options = head
        self.autocast = autocast
        self.compiled, self.recomputed, self.attention_kept, self.products_only = False, 0, False, False
        self.kernels = attention.Kernels()
        self.alone = False  # whether each row has one sequence, because the model would mix several
        self.parts = list(self.modules())  # the tree stays; going through it costs 3 ms for 28 layers with adapters
        self.plain_modes = all(_plain_mode(m) for m in self.parts if m is not self)
        self.sharded: list[Any] = []  # modules that gather weights; none where each GPU holds the whole model
        self.merged: Merged | None = None  # adapters that train while they are merged into the weights

    def train(self, mode: bool = True) -> Policy:
        """As nn.Module's, which takes 4 ms of the CPU for 28 layers with adapters."""
        if not self.plain_modes:
            return super().train(mode)
        for m in self.parts:
            m.__dict__["training"] = mode
        return self

    def run_as(self, choice: auto.Choice) -> None:
        """Takes over what was decided of memory and speed."""
        self.compiled, self.recomputed = choice.compile, choice.recomputed
        self.attention_kept, self.products_only = choice.attention_kept, choice.products_only
        if self.compiled:
            self._compile()
        else:
            compiled.plain(self.backbone)
        recompute.by_transformers(
            self.causal, self.backbone, 0 if self.compiled else self.recomputed, self.attention_kept
        )
        self.head_options = replace(self.head_options, chunk=choice.head_chunk, compile=choice.compile)

    def _compile(self) -> None:
        compiled.layers(self.backbone, self.recomputed, self.attention_kept, self.products_only)

    def try_kernels(self, device: torch.device, dtype: torch.dtype) -> str:
        """Looks which attention kernels work here; what to say of it."""
        c = self.causal.config
        width = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        heads = c.num_attention_heads
        refused = self.kernels.check(device, dtype, heads, getattr(c, "num_key_value_heads", None) or heads, width)
        return f"; cuDNN's for sequences of one length is not used: {refused}" if refused else ""

    def longest_row(self, longest: int) -> int:
        """Most tokens that a row should have when the longest sequence has so many; 0: any number. Without a
        variable-length kernel attention costs the square of the row; a model that mixes sequences has one in each."""
        if self.alone:
            return max(longest, 1)
        if self.implementation not in ("sdpa", "eager"):
            return 0
        return max(longest, 4096 if next(self.parameters()).is_cuda else 256)

    @contextlib.contextmanager
    def uncompiled(self) -> Iterator[None]:
        """For a few tokens now and then, which are not worth a compilation, nor a copy of all weights in the precision
        of the arithmetic: autocast would keep it to the end of a forward pass, in which each weight is used once."""
        was, options, cached = self.compiled, self.head_options, torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        if was:
            compiled.plain(self.backbone)
            self.head_options = replace(options, compile=False)
        try:
            yield
        finally:
            torch.set_autocast_cache_enabled(cached)
            if was:
                self._compile()
            self.head_options = options

    @property
    def causal(self) -> nn.Module:
        """The transformers model itself, inside peft's wrapper if there is one."""
        return self.model.get_base_model() if hasattr(self.model, "peft_config") else self.model

    @property
    def backbone(self) -> nn.Module:
        """The model without its output head."""
        return getattr(self.causal, self.causal.base_model_prefix)

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained instead of the weights."""
        return hasattr(self.model, "peft_config")

    def forward(
        self, row: Row, entropy: bool = False, squared: bool = False, raw: bool = False, entropy_gradient: bool = False
    ) -> Scores:
        """Scores of the row's labels. raw: temperature 1 whatever the row says."""
        device_type = row.ids.device.type
        cast = torch.autocast(device_type, self.autocast) if self.autocast else contextlib.nullcontext()
        with cast:
            hidden = self.backbone(
                input_ids=row.ids, position_ids=row.position_ids, attention_mask=None, use_cache=False,
                **attention.arguments(self.implementation, row, self.kernels.choose(row)),
            ).last_hidden_state[0]  # fmt: skip
        picked = hidden.index_select(0, row.read)
        out = self.causal.get_output_embeddings()
        temperature = torch.ones_like(row.temperature) if raw else row.temperature
        options = replace(self.head_options, entropy=entropy, squared=squared, entropy_gradient=entropy_gradient)
        with torch.autocast(device_type, enabled=False):
            lp, h, s = token_logprobs(
                picked, out.weight, getattr(out, "bias", None), row.label, temperature.to(picked.device), options
            )
        return Scores(lp, h, s)

    @contextlib.contextmanager
    def without_adapters(self) -> Iterator[None]:
        """The model before training, for the reference. Only the switch in the layers is turned: peft's own context
        manager also takes requires_grad away, and sharding that first runs under it never reduces gradients right."""
        from peft.tuners.tuners_utils import BaseTunerLayer

        layers = [m for m in self.model.modules() if isinstance(m, BaseTunerLayer)]
        for layer in layers:
            layer._disable_adapters = True
        try:
            with self.merged.taken_out() if self.merged else contextlib.nullcontext():
                yield
        finally:
            for layer in layers:
                layer._disable_adapters = False


def head_options(config: Any, compute: torch.dtype | None) -> HeadOptions:
    """How this model family makes logits."""
    scale = 1.0
    if getattr(config, "logits_scaling", None):  # Granite divides
        scale = 1.0 / config.logits_scaling
    elif getattr(config, "logit_scale", None):  # Cohere multiplies
        scale = float(config.logit_scale)
    return HeadOptions(scale=scale, softcap=getattr(config, "final_logit_softcapping", None), dtype=compute)


def device_of(c: Config, local_rank: int = 0) -> torch.device:
    """The device of this rank."""
    if c.model.device == "auto":
        return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    return torch.device(c.model.device)


def _read(
    path: str, c: Config, device: torch.device, hold: torch.device | None = None
) -> tuple[nn.Module, str, str]:  # fmt: skip
    """A model that computes on `device`, its attention kernel, and why that one. hold: where its weights are put."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    attention.register()
    revision = c.model.revision if path == c.model.path else None
    common = {"revision": revision, "trust_remote_code": c.model.trust_remote_code}
    config = AutoConfig.from_pretrained(path, **common)
    compute = DTYPES[c.model.compute_dtype]
    try:
        implementation, why = attention.choose(c.model.attention, device, compute, config)
    except ValueError as e:
        checks = ["Choose another attention, or leave it out."]
        raise ModelError(f"{path}: {e}", checks, setting="model.attention") from None
    kwargs = {"dtype": DTYPES[c.model.dtype], "attn_implementation": implementation}
    if c.model.random_init:
        with hold or device:
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=c.model.trust_remote_code, **kwargs)
    else:
        model = AutoModelForCausalLM.from_pretrained(path, **common, **kwargs)
    model.config.use_cache = False
    return model.to(hold or device), implementation, why


def load_policy(
    c: Config, device: torch.device, before: Built | None = None, place: Callable[[Policy], None] | None = None
) -> tuple[Policy, dict]:
    """The policy to train, and a summary for the events; `before`: what was built in host memory while inference
    started. place: puts it, from host memory, where it is to be; None: whole on the device. Raises ModelError when its
    logits cannot be reproduced."""
    began = time.perf_counter()
    compute = DTYPES[decided(c, device).model.compute_dtype]
    built = before if before is not None and before.serves(c, device) else build(c, device, host=place is not None)
    model, implementation, why = built.model, built.implementation, built.why
    policy = Policy(model, implementation, head_options(policy_config(model), compute), autocast_of(built.made))
    trained = sum(p.numel() for p in policy.parameters() if p.requires_grad)
    total = sum(p.numel() for p in policy.parameters())
    if place is None:
        model.to(device)
    else:
        place(policy)
    _wait(device)
    loaded = time.perf_counter()
    products.check(model, device, compute)
    if implementation == "varlen":
        why += policy.try_kernels(device, compute)
    tried = time.perf_counter()
    verify_head(policy, device)
    apart = keep_apart(policy, device)
    reshard(policy)
    which = built.made.model.float8
    narrowed = calculate_in_float8(policy, which, device) if which else ""
    _wait(device)
    return policy, {
        "attention": implementation, "attention_reason": why, "parameters": total, "trained_parameters": trained,
        "dtype": built.made.model.dtype, "compute_dtype": built.made.model.compute_dtype, "device": str(device),
        "built_early": built is before, "one_sequence_a_row": apart, "float8": narrowed,
        "loading": f"{_origin(built is before)} {loaded - began:.1f} s, trying products and attention kernels "
        f"{tried - loaded:.1f} s, comparing its head {time.perf_counter() - tried:.1f} s",
    }  # fmt: skip


def _origin(early: bool) -> str:
    return "moving what was built before the start" if early else "building it"


def _wait(device: torch.device) -> None:
    """Until the device has done what it was given, so that a time is that of the work before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class Built:
    """A model with its adapters, in whichever memory. made: the configuration, its precision decided."""

    made: Config
    device: torch.device  # on which it is to compute
    model: nn.Module
    implementation: str
    why: str

    def serves(self, c: Config, device: torch.device) -> bool:
        """Whether `build` would make the same for these."""
        wanted, made = decided(c, device), self.made
        return (wanted.model, wanted.lora, wanted.seed, device.type) == (
            made.model, made.lora, made.seed, self.device.type
        )  # fmt: skip


def build(c: Config, device: torch.device, narrow: bool | None = None, host: bool = False) -> Built:
    """The model that `device` will compute with, and its adapters. narrow: whether that device calculates in bfloat16;
    then it is not touched, and everything stays in host memory, as with `host`. The same numbers come of all: a model's
    weights are read in host memory, and adapters are drawn in it. Only random weights are drawn on the device."""
    torch.manual_seed(c.seed)
    c = decided(c, device, narrow)
    here = narrow is not None or (host and not c.model.random_init)
    model, implementation, why = _read(c.model.path, c, device, torch.device("cpu") if here else None)
    if c.lora.rank:
        model = adapt(model, c)
    return Built(c, device, model, implementation, why)


def decided(c: Config, device: torch.device, narrow: bool | None = None) -> Config:
    """The configuration with the precision that it leaves open. narrow: whether the device calculates in bfloat16;
    None: it is asked."""
    if narrow is None:
        narrow = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    dtype, compute = auto.precision(c.model.dtype, c.model.compute_dtype, bool(c.lora.rank), narrow)
    return replace(c, model=replace(c.model, dtype=dtype, compute_dtype=compute))


def autocast_of(c: Config) -> torch.dtype | None:
    """The precision to calculate in, where it is not that of the weights; c: its precision decided."""
    return DTYPES[c.model.compute_dtype] if c.model.compute_dtype != c.model.dtype else None


def policy_config(model: nn.Module) -> Any:
    """The transformers configuration of a model, inside peft's wrapper or not."""
    return (model.get_base_model() if hasattr(model, "peft_config") else model).config


@torch.no_grad()
def verify_head(policy: Policy, device: torch.device) -> None:
    """Compares the chunked head with the model's own logits once: a family with an unknown output transform must stop
    here, not train on wrong probabilities."""
    was = policy.training
    policy.eval()
    vocabulary = policy.causal.config.vocab_size
    ids = (torch.arange(1, 9, device=device) * 7919 % vocabulary)[None]
    n = ids.shape[1]
    row = Row(
        [0], ids, torch.arange(n, device=device)[None], torch.tensor([0, n], dtype=torch.int32, device=device), n,
        torch.arange(n - 1, device=device), ids[0, 1:], torch.arange(n - 1), torch.ones(n - 1, device=device),
    )  # fmt: skip
    ours = policy(row).lp
    device_type = device.type
    cast = torch.autocast(device_type, policy.autocast) if policy.autocast else contextlib.nullcontext()
    with cast:
        logits = policy.causal(
            input_ids=ids, position_ids=row.position_ids, use_cache=False,
            **attention.arguments(policy.implementation, row),
        ).logits[0, :-1]  # fmt: skip
    own = logits.double().log_softmax(-1).gather(-1, ids[0, 1:, None]).squeeze(-1)
    gap = float((ours.double() - own).abs().max())
    narrow = logits.dtype in (torch.float16, torch.bfloat16) or policy.autocast is not None
    if not gap < (0.2 if narrow else 1e-3):
        raise ModelError(
            f"log-probabilities of {type(policy.causal).__name__} differ by {gap:.3g} from the model's own logits: "
            "its output head does something this worker does not know; report the model, or use another"
        )
    policy.train(was)


def keep_apart(policy: Policy, device: torch.device) -> str:
    """Gives each sequence a row of its own where the model would mix those of one row; why, or nothing."""
    why = packing.mixed(policy, policy.causal.config.vocab_size, device)
    policy.alone = bool(why)
    return why


def calculate_in_float8(policy: Policy, which: str, device: torch.device) -> str:
    """Has its linear layers calculate in float8 from now on; what to say of it. which: model.float8. Raises ModelError
    where that cannot be."""
    if policy.head_options.dtype != torch.bfloat16:
        raise ModelError(
            f"model.float8 goes with arithmetic in bfloat16, and here it is in {policy.head_options.dtype}",
            ["Set compute_dtype = bfloat16 (on a CPU it is float32 unless that is set), or leave float8 out."],
            setting="model.float8",
        )  # fmt: skip
    if why := float8.refused(device):
        raise ModelError(
            f"model.float8 needs a device that multiplies in float8 with a scale for each row. {device} does not: "
            f"{why}",
            ["Use a GPU that can, such as NVIDIA's H100 and newer ones, or leave float8 out."], setting="model.float8",
        )  # fmt: skip
    fit, found = float8.install(policy.backbone, which)
    if not fit:
        raise ModelError(
            f"model.float8: none of the {found} linear layers of {type(policy.causal).__name__} can be calculated so: "
            f"both sides of a weight must be multiples of {float8.ALIGNED}", ["Leave float8 out."],
            setting="model.float8",
        )  # fmt: skip
    _, slow = float8.kernels(device)
    passes = "both passes" if which == "all" else "the backward pass"
    return f"{fit} of {found} linear layers calculate {passes} in float8" + (
        f"; rounding takes several passes over memory, because Triton does not do it: {slow}" if slow else ""
    )


def shard(policy: Policy, c: Config, mesh: Any, offload: bool = False) -> None:
    """FSDP2: one group per decoder layer, one for the rest; the rest stays gathered during a step because the chunked
    head reads its weight outside any module of its own. Adapters are whole on every rank: they are small, in float32
    where a group has one precision, and merged into whichever rows of the weights a rank has."""
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    compute = policy.autocast
    # gradients are summed over ranks in the weights' precision
    reduce = next(p.dtype for p in policy.parameters()) if compute else None
    kwargs: dict[str, Any] = {
        "mesh": mesh, "mp_policy": MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce)
    }  # fmt: skip
    if policy.adapted:
        kwargs["ignored_params"] = {p for p in policy.parameters() if p.requires_grad}
        for p in kwargs["ignored_params"]:
            p.data = p.data.to(mesh.device_type)
    if offload:
        kwargs["offload_policy"] = CPUOffloadPolicy()
    for layer in policy.backbone.layers:
        fully_shard(layer, **kwargs)
    fully_shard(policy, reshard_after_forward=False, **kwargs)
    policy.sharded = [m for m in policy.modules() if hasattr(m, "reshard")]
    policy.autocast = None


def keep_gathered(policy: Policy, keep: bool) -> None:
    """Whether the weights that a forward pass gathers stay until the backward pass, which then gathers none."""
    for layer in policy.backbone.layers:
        layer.set_reshard_after_forward(not keep)


def hold(policy: Policy, keep: bool) -> None:
    """Whether a backward pass leaves gathered weights and whole gradients, for one that follows before the weights
    change: only the last then sums gradients over ranks."""
    if policy.sharded:
        policy.set_requires_gradient_sync(not keep)
        policy.set_reshard_after_backward(not keep)


def reshard(policy: Policy) -> None:
    """Gives back what forward passes without a backward pass have gathered. Until then it takes memory, and names lead
    to the gathered copies: whoever reads weights or the optimizer's state by name needs the shards."""
    for module in policy.sharded:
        module.reshard()


class Reference:
    """Log-probabilities of the policy before training, from wherever the configuration says."""

    def __init__(
        self, c: Config, policy: Policy, device: torch.device, mesh: Any = None,
        teacher: Teacher | None = None,
    ):  # fmt: skip
        self.device, self.policy = device, policy
        self.source = source_of(c)
        self.teacher = None
        if self.source == "served":
            self.teacher = teacher or Teacher(lambda: c.reference)
        c = decided(c, device)
        self.offload = c.reference.offload and device.type != "cpu" and mesh is None
        self.copy: Policy | None = None
        self.apart = ""  # why a teacher of another family wants one sequence in each row
        if self.source == "copy":
            hold = torch.device("cpu") if self.offload or mesh is not None else device
            model, implementation, _ = _read(c.reference.path or c.model.path, c, device, hold)
            model.requires_grad_(False)
            options = head_options(model.config, policy.head_options.dtype)
            # what is sharded has no autocast any more
            self.copy = Policy(model, implementation, options, autocast_of(c)).eval()
            if mesh is not None:
                shard(self.copy, c, mesh, c.reference.offload)
            if c.reference.path:
                self._verify(c)
                reshard(self.copy)
            if c.model.float8 == "all":  # else the two would differ before anything is trained
                float8.install(self.copy.backbone, "all")

    def _verify(self, c: Config) -> None:
        """A teacher may be of another family, but must know the policy's tokens."""
        here, there = self.policy.causal.config.vocab_size, self.copy.causal.config.vocab_size
        if there < here:
            raise ModelError(
                f"reference.path: {c.reference.path} knows {there} tokens, the policy {here}; a reference must have "
                "been trained with the policy's tokenizer", ["Name a model with the same tokenizer."],
                setting="reference.path",
            )  # fmt: skip
        with self.ready() as copy:
            verify_head(copy, self.device)
            self.apart = keep_apart(copy, self.device)
            self.policy.alone |= copy.alone  # the same rows go through both

    @contextlib.contextmanager
    def ready(self) -> Iterator[Policy]:
        """The reference, on the device for as long as the block lasts."""
        if self.source == "lora_off":
            with self.policy.without_adapters():
                yield self.policy
            return
        if self.offload:
            self.copy.to(self.device)
        try:
            yield self.copy
        finally:
            if self.offload:
                self.copy.to("cpu")
