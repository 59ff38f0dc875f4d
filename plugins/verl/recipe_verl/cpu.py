"""A CPU as a platform of verl, which has engines for accelerators only. For tests and small models."""

import os
import types

import torch


def install() -> None:
    """Makes verl use the CPU where no GPU is visible. Before any other import of verl."""
    if torch.cuda.is_available():
        return
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")  # the FSDP engine is registered for cuda and npu
    from verl.plugin.platform import platform_manager
    from verl.plugin.platform.platform_cuda import PlatformCUDA

    def none(*_, **__):
        return None

    def zero(*_):
        return 0

    memory = ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")
    module = types.SimpleNamespace(**{
        **vars(torch.cpu), **dict.fromkeys(memory, zero), "empty_cache": none, "mem_get_info": lambda *_: (1, 1),
        "get_rng_state": torch.get_rng_state, "set_rng_state": torch.set_rng_state,
    })  # fmt: skip

    class PlatformCPU(PlatformCUDA):
        """current_device is a name: Tensor.to("cpu") works where Tensor.to(0) would not."""

        device_name, vendor_name, device_module = "cpu", "cpu", module
        is_available = lambda self: True  # noqa: E731
        current_device = lambda self: "cpu"  # noqa: E731
        device_count = lambda self: 1  # noqa: E731
        communication_backend_name = lambda self: "gloo"  # noqa: E731
        set_device = synchronize = manual_seed = manual_seed_all = empty_cache = none

    platform_manager.set_platform(PlatformCPU())
