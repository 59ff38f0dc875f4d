"""Whether a model keeps the sequences of a packed row apart.

Attention is told where each sequence begins. Layers with a convolution or a recurrent state (Mamba, gated delta rules)
and masks that a family makes in its own way may not be: then a sequence is scored with what came before it in the row,
and trained on wrong numbers without an error. What a family does differs between versions of transformers and with the
kernels that are installed, so it is tried, on the model as it will run."""

from __future__ import annotations

import torch
from torch import nn

from .batch import Row, sample

LENGTHS = (24, 40)
TIMES_ROUNDING = 4  # more than this times what rounding does is no rounding
EXACT = 1e-5  # a smaller change of a log-probability is rounding in any precision
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


@torch.no_grad()
def mixed(policy: nn.Module, vocabulary: int, device: torch.device) -> str:
    """Why sequences must not share a row of this policy; empty when they may.

    The log-probabilities of a row's last sequence must not change with the tokens of its first. They may by rounding,
    because experts calculate with tokens of all sequences at once. How much that is, the other direction tells: those
    of the first change with the last by nothing else, since a causal model does not look ahead."""
    was = policy.training
    policy.eval()
    cut = LENGTHS[0] - 1  # scored tokens of the first sequence
    scores = [policy(_row(vocabulary, changed).to(device)).lp.double() for changed in (None, 0, 1)]
    policy.train(was)
    change = float((scores[0] - scores[1])[cut:].abs().max())
    rounding = float((scores[0] - scores[2])[:cut].abs().max())
    if change <= max(TIMES_ROUNDING * rounding, EXACT):  # not so for NaN
        return ""
    return (
        f"a sequence's log-probabilities change by {change:.2g} with the tokens of another in its row "
        f"(by rounding {rounding:.2g}): this family's layers pass on what they have read, so each row has one sequence"
    )


def _row(vocabulary: int, changed: int | None) -> Row:
    """Two sequences of made-up tokens, of which one has been given others."""
    row = sample(vocabulary, LENGTHS)
    if changed is not None:
        first = sum(LENGTHS[:changed])
        part = row.ids[0, first : first + LENGTHS[changed]]
        part.copy_((part + 1 + torch.arange(len(part)) * 31 % (vocabulary - 1)) % vocabulary)
        row.label = row.ids[0, row.read + 1]
    return row


def carries_state(model: nn.Module) -> bool:
    """Whether layers read a sequence step by step. torch.compile breaks such a layer into pieces, or unrolls its loop
    over the sequence, for minutes and anew for each length."""
    config = getattr(model, "config", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    return not kinds <= ATTENTION or any(isinstance(m, nn.Conv1d) for m in model.modules())
