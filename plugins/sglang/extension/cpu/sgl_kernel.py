"""Stands for SGLang's compiled kernels where there is no GPU.

The package of that name holds kernels for GPUs only. With the attention backend torch_native SGLang computes in plain
PyTorch, but it imports names from here all the same. What is called that PyTorch does not do is an error with its name.
"""

import pageable

__version__ = "0.4.5"

pageable.install()


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_args, **_kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} is a kernel for GPUs, and this machine has none")

    missing.__name__ = name
    return missing
