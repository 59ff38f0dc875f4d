"""What a file with a loss or an estimator of your own imports; docs/losses.md is the guide.

loss, estimator         the decorators: what the rest must know of the function
Terms, Result           what a loss is given and returns
Inputs                  what an estimator is given
mean, total, maximum    metrics, and how each is put together from micro-batches and ranks
ratio_metrics           what every built-in loss reports: its ratio and the share of tokens clipped
seg_sum, seg_mean, …    sums, means, maxima and counts by sequence (or by group)
losses, estimators      the built-in functions, to build on: losses.ppo, estimators.grpo
"""

from worker import advantage as estimators
from worker import loss as losses
from worker.advantage import Inputs
from worker.loss import LossOptions, ratio_metrics
from worker.measure import maximum, mean, total
from worker.registry import Alias, Result, Terms, estimator, loss
from worker.segments import seg_count, seg_max, seg_mean, seg_std, seg_sum

__all__ = [
    "Alias", "Inputs", "LossOptions", "Result", "Terms", "estimator", "estimators", "loss", "losses", "maximum", "mean",
    "ratio_metrics", "seg_count", "seg_max", "seg_mean", "seg_std", "seg_sum", "total",
]  # fmt: skip
