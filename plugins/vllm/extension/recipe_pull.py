"""Where a trainer's tensors belong in a model that vLLM serves: recipe_sdk.receive has the rules, vLLM's models say
what they fuse."""

from recipe_sdk.receive import puller
from recipe_sdk.receive.fused import bare, fit, tied
from recipe_sdk.receive.handles import Refused

__all__ = ["Puller", "Refused", "bare", "tied"]


class Puller(puller.Puller):
    """The tensors of one trainer, and where each of them belongs in the model."""

    def __init__(self, model, handles, direct=True, device=None):
        """direct: parameters may be written in place, that is: no layer keeps a packed copy of its own."""
        packed = getattr(model, "packed_modules_mapping", None) or {}
        super().__init__(handles, lambda tensors: fit(model, tensors, packed, direct), device)
