"""Copies a trainer's weights into a served model, from memory that both can reach or as the trainer sends them.

The trainer publishes handles (plugins/grpo/worker/ipc.py writes them): of CUDA tensors, of places in anonymous shared
memory, or of where to receive the tensors (recipe_receive.py). They are opened once; every version after that is one copy. A dense model on one GPU is written directly, each
tensor into its place in vLLM's fused parameters; everything else goes through vLLM's own loader. What cannot fit is refused
with the tensor's name before anything is touched.
"""

import base64
import mmap
import os
import time
import warnings

FORM = 1


class Refused(Exception):
    """The weights cannot be taken, and nothing has been touched."""


def bare(layer):
    """The layer itself, where LoRA has wrapped it."""
    return getattr(layer, "base_layer", layer)


class Puller:
    """The tensors of one trainer, and where each of them belongs in the model."""

    def __init__(self, model, handles, direct=True, device=None):
        """direct: parameters may be written in place, that is: no layer keeps a packed copy of its own. device: where
        tensors are received."""
        import torch

        if handles.get("form") != FORM:
            raise Refused(f"the trainer writes handles of form {handles.get('form')}, this server reads form {FORM}")
        self.handles = handles
        self._alive()
        self.source = _open(handles, device)
        self.names = [t["name"] for t in handles["tensors"]]
        for entry, tensor in zip(handles["tensors"], self.source):
            if list(tensor.shape) != entry["shape"]:
                raise Refused(f"{entry['name']} arrived with shape {list(tensor.shape)}, told was {entry['shape']}")
        targets, why = fit(model, dict(zip(self.names, self.source)), direct)
        self.targets, self.why = targets, why
        self.bytes = sum(t.numel() * t.element_size() for t in self.source)
        self.cuda = handles["kind"] in ("cuda", "nccl") and torch.cuda.is_available()

    def close(self):
        """Nothing is pulled any more."""
        if self.source.receiver is not None:
            self.source.receiver.close()

    def _alive(self):
        if self.handles["kind"] == "nccl":
            return  # its connection tells
        pid = self.handles["pid"]
        if _host() != self.handles["host"]:
            raise Refused("the trainer runs on another machine, so its memory cannot be reached")
        if _started(pid) != self.handles["started"]:
            raise Refused(f"the trainer's process {pid} is gone, and its memory with it")

    def pull(self, version, load):
        """Copies the version into the model; load is vLLM's loader."""
        import torch

        begun = time.perf_counter()
        self._alive()
        if (held := self._held(version)) != version:
            raise Refused(f"the trainer's memory holds version {held}, wanted is {version}")
        if self.source.receiver is not None:
            self._receive(version, load)
        elif self.targets is None:
            load(zip(self.names, self.source))
        else:
            with torch.no_grad():
                if self._plain():
                    torch._foreach_copy_(self.targets, self.source, non_blocking=True)
                else:
                    for target, source in zip(self.targets, self.source):
                        target.copy_(source, non_blocking=True)
        if self.cuda:
            torch.cuda.current_stream().synchronize()  # the trainer goes on when we answer
        if not self._still(version):
            raise RuntimeError(f"the trainer went away while version {version} was copied, so the model holds a part of it")
        return {
            "path": "direct" if self.targets is not None else "loader", "why": self.why,
            "tensors": len(self.names), "bytes": self.bytes, "seconds": time.perf_counter() - begun,
        }  # fmt: skip

    def _receive(self, version, load):
        """Takes the tensors as they come; only a bucket of them is in memory besides the model's own."""
        import torch

        with self.source.receiver.begin(self.handles["key"], version) as tensors:
            if self.targets is None:
                load(zip(self.names, tensors))
                for _ in tensors:  # what the loader had no use for
                    pass
                return
            with torch.no_grad():
                for target, tensor in zip(self.targets, tensors, strict=True):
                    target.copy_(tensor, non_blocking=True)

    def _still(self, version):
        """Whether the trainer was there all the time; one that sends says so itself."""
        if self.source.receiver is not None:
            return True
        return _started(self.handles["pid"]) == self.handles["started"] and self._held(version) == version

    def _held(self, version):
        """Whose weights the memory holds. A GPU's does not say: there the proof of the sync block has the last word."""
        return version if self.source.map is None else int.from_bytes(self.source.map[:8], "little", signed=True)

    def _plain(self):
        return all(
            t.device == s.device and t.dtype == s.dtype for t, s in zip(self.targets, self.source)
        )

    def differences(self):
        """How many parameters are not the trainer's, for tests; None when that is not known."""
        import torch

        if self.targets is None or self.source.receiver is not None:
            return None
        return sum(not torch.equal(s.to(t), t) for t, s in zip(self.targets, self.source))


class _Tensors(list):
    """The trainer's tensors; map is the shared memory that they lie in, if they do. With a receiver they are shapes only."""

    map = None
    receiver = None


def _open(handles, device=None):
    if handles["kind"] == "nccl":
        return _open_socket(handles, device)
    if handles["kind"] == "memory":
        return _open_memory(handles)
    if handles["kind"] == "cuda":
        return _open_cuda(handles)
    raise Refused(f"handles of kind {handles['kind']!r} are unknown")


def _open_socket(handles, device):
    import recipe_receive
    import torch

    out = _Tensors()
    for t in handles["tensors"]:
        out.append(torch.empty(t["shape"], dtype=getattr(torch, t["dtype"]), device="meta"))
    out.receiver = recipe_receive.Receiver(handles, device, Refused)
    return out


def _open_memory(handles):
    import torch

    path = f"/proc/{handles['pid']}/fd/{handles['fd']}"
    try:
        if handles["key"] not in os.readlink(path):
            raise Refused(f"{path} is another file than the trainer's")
        file = os.open(path, os.O_RDONLY)
    except OSError as e:
        raise Refused(f"the trainer's memory cannot be opened: {e}; do both run as one user, in one container?") from e
    try:
        mapped = mmap.mmap(file, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it cannot be written to is what we want
        data = torch.frombuffer(mapped, dtype=torch.uint8)
    out = _Tensors()
    out.map = mapped
    for t in handles["tensors"]:
        dtype = getattr(torch, t["dtype"])
        at = handles["header"] + t["at"]
        size = torch.Size(t["shape"]).numel() * dtype.itemsize
        out.append(data[at : at + size].view(dtype).view(t["shape"]))
    return out


def _open_cuda(handles):
    import torch
    from torch.multiprocessing.reductions import rebuild_cuda_tensor

    if not torch.cuda.is_available():
        raise Refused(f"the trainer's weights lie on GPU {handles['gpu']}, and this server has none")
    seen = visible()
    if handles["gpu"] not in seen:
        raise Refused(
            f"the trainer's weights lie on GPU {handles['gpu']}, which this server does not see; it sees {', '.join(seen)}"
        )
    device = seen.index(handles["gpu"])
    out = _Tensors()
    for t in handles["tensors"]:
        out.append(
            rebuild_cuda_tensor(
                torch.Tensor, torch.Size(t["shape"]), tuple(t["stride"]), t["offset"], torch.UntypedStorage,
                getattr(torch, t["dtype"]), device, _binary(t["handle"]), t["bytes"], t["start"], False,
                _binary(t["counter"]), t["counter_at"], _binary(t["event"]), t["event_waits"],
            )
        )  # fmt: skip
    return out


def fit(model, tensors, direct=True):
    """(the place of each tensor in the model, "") or (None, why vLLM's loader has to place them).

    Raises Refused when names or shapes show that the two models differ.
    """
    params = {n.replace(".base_layer.", "."): p for n, p in model.named_parameters()}
    modules = {n.replace(".base_layer", ""): m for n, m in model.named_modules()}
    packed = getattr(model, "packed_modules_mapping", None) or {}
    part_of = {part: (fused, i) for fused, parts in packed.items() for i, part in enumerate(parts) if part != fused}
    if any(".experts." in n for n in params):
        return None, "a mixture of experts"
    spread = any(getattr(bare(m), "tp_size", 1) > 1 for m in modules.values())
    places, filled, why = [], {}, "" if direct else "layers keep packed copies of their weights"
    if spread:
        why = "layers are spread over several GPUs"
    for name, tensor in tensors.items():
        place = _place(name, params, modules, part_of)
        if place is None:
            if "lm_head" in name and tied(model):
                places.append(None)
                why = why or "an output head that the server shares with the embedding"
                continue
            raise Refused(f"the served model has no parameter for the trainer's {name} {list(tensor.shape)}")
        target, whole = place
        filled.setdefault(whole, 0)
        filled[whole] += target.numel()
        if target.numel() == 0:  # packed away by the CPU's kernels
            why = why or f"{name} is kept in another form"
        elif target.shape != tensor.shape:
            rows = target.ndim and target.shape[1:] == tensor.shape[1:] and target.shape[0] > tensor.shape[0]
            padded = rows and ("embed" in name or "lm_head" in name)
            if not padded and not spread:
                raise Refused(f"{name} has shape {list(tensor.shape)} in the trainer and {list(target.shape)} in the server")
            why = why or f"{name} is laid out otherwise in the server"
        if target.dtype != tensor.dtype and not (target.is_floating_point() and tensor.is_floating_point()):
            why = why or f"{name} is {tensor.dtype} in the trainer and {target.dtype} in the server"
        places.append(target)
    for name, p in params.items():
        exempt = ".lora_" in name or name.endswith("_scale") or ("lm_head" in name and tied(model))
        if name not in filled and not exempt:
            raise Refused(f"the trainer publishes nothing for the server's {name} {list(p.shape)}")
        if not why and name in filled and filled[name] != p.numel():
            raise Refused(f"the trainer publishes {filled[name]} of the {p.numel()} numbers of the server's {name}")
    return (None, why) if why else (places, "")


def _place(name, params, modules, part_of):
    """(the view that a checkpoint's tensor fills, the parameter that it belongs to), or None."""
    if name in params:
        return params[name].data, name
    prefix, _, leaf = name.rpartition(".")
    path, _, part = prefix.rpartition(".")
    if part not in part_of:
        return None
    fused, i = part_of[part]
    whole = f"{path}.{fused}.{leaf}" if path else f"{fused}.{leaf}"
    if whole not in params:
        return None
    module = bare(modules[whole.rpartition(".")[0]])
    sizes = getattr(module, "output_partition_sizes", None) or getattr(module, "output_sizes", None)
    data = params[whole].data
    if not sizes or len(sizes) <= i or data.ndim == 0 or sum(sizes) != data.shape[0]:
        return data, whole  # of another shape, so it goes through the loader
    start = sum(sizes[:i])
    return data[start : start + sizes[i]], whole


def tied(model):
    """Whether the output head is the embedding."""
    config = getattr(model, "config", None)
    config = getattr(config, "text_config", None) or config
    return bool(getattr(config, "tie_word_embeddings", False))


def visible():
    """The GPUs that this process sees."""
    import torch

    return [str(torch.cuda.get_device_properties(i).uuid) for i in range(torch.cuda.device_count())]


def reach():
    """The memory that weights can be copied from, in the words of the trainer."""
    return [f"gpu:{u}" for u in visible()] or [f"host:{_host()}"]


def machine():
    """The machine, until it is booted again: weights are sent by nccl within one."""
    return _host()


def arithmetic(dtype):
    """How exactly this server multiplies: its dtype; float32 on a GPU uses TensorFloat-32 in attention kernels."""
    import torch

    name = str(dtype).removeprefix("torch.")
    return "tf32" if name == "float32" and torch.cuda.is_available() else name


def _binary(text):
    return None if text is None else base64.b64decode(text)


def _started(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _host():
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()
