"""GSPO written again as a loss of one's own (Zheng et al. 2025, arXiv 2507.18071): loss { import =
"losses/gspo.py:gspo" }"""

import torch
from recipe_grpo import Result, loss, ratio_metrics, seg_mean


@loss("my_gspo", ratio="sequence_token", aggregation="seq-mean-token-mean")
def gspo(t, o):
    sequence = seg_mean(t.lp - t.old, t.seq, t.n)[t.seq].detach()  # log ratio of the whole sequence, a constant
    r = torch.exp((t.lp - t.lp.detach() + sequence).clamp(max=10))
    plain, clipped = -t.adv * r, -t.adv * r.clamp(1 - o.clip_low, 1 + o.clip_high)
    hit = clipped > plain
    return Result(torch.maximum(plain, clipped), ratio_metrics(r, hit & (t.adv > 0), hit & (t.adv < 0)))
