"""Whether a model keeps the sequences of a packed row apart.

Attention is told where each sequence begins. Layers with a convolution or a recurrent state (Mamba, gated delta rules)
and masks that a family makes in its own way may not be: then a sequence is scored with what came before it in the row,
and trained on wrong numbers without an error. What a family does differs between versions of transformers and with the
kernels that are installed, so it is tried, on the model as it will run."""

from __future__ import annotations

import torch
from torch import nn

from .batch import Row

LENGTHS = (24, 40)
TIMES_ROUNDING = 4  # more than this times what rounding does is no rounding
EXACT = 1e-5  # a smaller change of a log-probability is rounding in any precision
ATTENTION = {"full_attention", "sliding_attention", "chunked_attention"}


@torch.no_grad()
def mixed(policy: nn.Module, vocabulary: int, device: torch.device) -> str:
    """Why sequences must not share a row of this policy; empty when they may.

    The log-probabilities of a row's last sequence must not depend on the tokens of its first. How much they change by
    rounding alone (experts calculate with tokens of all sequences at once) tells the opposite case, which no causal
    model can mix: those of the first when the last changes."""
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
    total = sum(LENGTHS)
    ids = torch.arange(1, total + 1) * 7919 % vocabulary
    first, last = slice(0, LENGTHS[0]), slice(LENGTHS[0], total)
    if changed is not None:
        part = (first, last)[changed]
        ids[part] = (ids[part] + 1 + torch.arange(LENGTHS[changed]) * 31 % (vocabulary - 1)) % vocabulary
    positions = torch.cat([torch.arange(n) for n in LENGTHS])
    label = torch.nonzero(positions).flatten()
    bounds = torch.tensor([0, LENGTHS[0], total], dtype=torch.int32)
    return Row([0, 1], ids[None], positions[None], bounds, max(LENGTHS), label - 1, ids[label],
               torch.arange(len(label)), torch.ones(len(label), dtype=torch.float64))  # fmt: skip


def carries_state(model: nn.Module) -> bool:
    """Whether layers read a sequence step by step. torch.compile breaks such a layer into pieces, or unrolls its loop
    over the sequence, for minutes and anew for each length."""
    config = getattr(model, "config", None)
    kinds = set(getattr(config, "layer_types", None) or ())
    return not kinds <= ATTENTION or any(isinstance(m, nn.Conv1d) for m in model.modules())
