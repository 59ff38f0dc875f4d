"""What TRL computes of scores and of the sampler's log-probabilities before its loss, as pure functions."""

from __future__ import annotations

from torch import Tensor


def advantages(scores: Tensor, group: Tensor, groups: int, scale: str = "group") -> Tensor:
    """float64 [n]: scores less their group's mean, divided by the deviation (ddof 1) of the group or of the batch plus
    1e-4, or by nothing (scale_rewards). scores: NaN where there is none, which gives 0; group: int64 [n]."""
    known = ~scores.isnan()
    out = scores.new_zeros(scores.shape)
    for k in range(groups):
        mine = known & (group == k)
        values = scores[mine]
        of = {"group": values, "batch": scores[known]}.get(scale)
        deviation = 1.0 if of is None else (of.std() if len(of) > 1 else of.new_zeros(())) + 1e-4
        out[mine] = (values - values.mean()) / deviation
    return out


def importance(difference: Tensor, mode: str, low: float | None, high: float | None) -> Tensor:
    """Weights trainer / sampler, of tokens [n, C] or of sequences [n, 1]. difference float [n, C]: log-probabilities of
    the trainer less the sampler's, 0 where not trained or unknown. mode: vllm_importance_sampling_mode; beyond the
    bounds a weight is clamped (truncate) or 0 (mask)."""
    level, beyond = mode.split("_")
    ratio = (difference.sum(-1, keepdim=True) if level == "sequence" else difference).exp()
    bounded = ratio.clamp(min=low, max=high) if low is not None or high is not None else ratio
    return bounded if beyond == "truncate" else ratio.masked_fill(bounded != ratio, 0.0)
