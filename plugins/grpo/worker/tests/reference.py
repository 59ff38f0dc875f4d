"""Independent float64 references: dense (B, T) padded tensors with a 0/1 mask, written from the formulas of the papers
and projects, sharing no code with the worker (which holds flat ragged vectors)."""

import math

import torch


def agg(L, M, mode, length):
    tokens = M.sum(1)
    if mode == "token-mean":
        return (L * M).sum() / M.sum()
    if mode == "seq-mean-token-sum":
        return (L * M).sum(1).sum() / (tokens > 0).sum()
    if mode == "seq-mean-token-mean":
        return ((L * M).sum(1) / (tokens + 1e-8)).sum() / (tokens > 0).sum()
    if mode == "seq-mean-token-sum-norm":
        return (L * M).sum() / ((tokens > 0).sum() * length)
    if mode == "batch-mean-token-mean":
        return ((L * M).sum(1) / tokens.clamp(min=1)).mean()
    if mode == "batch-mean-token-sum":
        return (L * M).sum(1).mean()
    if mode == "batch-sum-norm":
        return (L * M).sum() / (len(L) * length)
    raise KeyError(mode)


def kl(lp, ref, name):
    if name == "k1":
        return lp - ref
    if name == "abs":
        return abs(lp - ref)
    if name in ("k2", "k2+"):
        return (lp - ref) ** 2 / 2
    if name == "k3":
        return torch.exp(ref - lp) - (ref - lp) - 1
    value = kl(lp, ref, name[:-1]).detach()
    k2 = (lp - ref) ** 2 / 2
    return value + k2 - k2.detach()


def clamp(x, lo, hi):
    return torch.where(x < lo, torch.full_like(x, lo), torch.where(x > hi, torch.full_like(x, hi), x))


def ppo_loss(r, A, lo, hi, c):
    """PPO written by cases of the sign of the advantage, not as a max of two."""
    positive = -A * torch.where(r > 1 + hi, torch.full_like(r, 1 + hi), r)
    negative = -A * torch.where(r < 1 - lo, torch.full_like(r, 1 - lo), r)
    if c is not None:
        negative = torch.where(r > c, -A * c, negative)
    return torch.where(A > 0, positive, negative)


def per_token(name, lp, old, b, ref, A, M, w, picked):
    """(B, T) loss and, for gmpo, the string "sequence" with (B,) values."""
    r = torch.exp(lp - old)
    lengths = M.sum(1)
    one = torch.ones_like(lp)
    w = one if w is None else w
    if name == "ppo":
        return ppo_loss(r, A, 0.2, 0.2, 3.0) * w
    if name == "decoupled_ppo":  # pi_prox / pi_behavior outside, pi / pi_prox in the surrogate; w: the bounded weight
        return ppo_loss(r, A, 0.2, 0.2, 3.0) * (torch.exp(old) / torch.exp(b) if w is one else w)
    if name == "delta":
        unclipped = torch.where(r > 1.5, torch.full_like(r, 1.5), r) * A
        return -torch.min(unclipped, clamp(r, 0.8, 1.28) * A) * w
    if name == "sequence":
        mean = ((lp - old) * M).sum(1) / lengths.clamp(min=1)
        return ppo_loss(torch.exp(mean)[:, None] * one, A, 0.2, 0.2, None) * w
    if name == "gspo":
        k = (((lp - old) * M).sum(1) / lengths.clamp(min=1)).detach()[:, None]
        s = torch.exp(lp - lp.detach() + k)
        return ppo_loss(s, A, 0.2, 0.2, None) * w
    if name == "cispo":
        return -clamp(r, 0.8, 1.2).detach() * A * lp * w
    if name == "cispo_cap":
        return -torch.where(r > 1.1, torch.full_like(r, 1.1), r).detach() * A * lp * w
    if name == "sapo":
        tau = torch.where(A > 0, 1.0 * one, 1.05 * one)
        return -A * 4 / tau / (1 + torch.exp(-tau * (r - 1))) * w
    if name == "gmpo":
        d = lp - old
        up = torch.where(d > 0.2, torch.full_like(d, 0.2), d)
        down = torch.where(d < -0.2, torch.full_like(d, -0.2), d)
        d = torch.where(A > 0, up, torch.where(A < 0, down, 0 * d))
        L = lengths + 1e-8
        weights = torch.exp((torch.log(w + 1e-10) * M).sum(1) / L)
        seq = -((A * M).sum(1) / L) * torch.exp((d * M).sum(1) / L)
        return seq * (weights if w is not one else 1)
    if name == "clip_cov":
        return ppo_loss(r, A, 0.2, 0.2, None) * (1 - picked) * w
    if name == "kl_cov":
        return (-A * r + 0.1 * picked * abs(lp - old)) * w
    if name in ("gpg", "reinforce"):
        return -A * lp * w
    if name == "vespo":
        logw = ((lp - old) * M).sum(1) + (torch.log(w.clamp(min=1e-8)) * M).sum(1)
        W = torch.exp(logw).detach()[:, None]
        k = torch.where(A >= 0, 2.0 * one, 3.0 * one)
        lam = torch.where(A >= 0, 3.0 * one, 2.0 * one)
        return -torch.exp(lam) * W**k * torch.exp(-lam * W) * A * lp
    p, q = torch.exp(lp).detach(), torch.exp(b)
    rho = torch.exp(lp - b)
    square = 1e-3 * (lp - b) ** 2
    if name == "dppo":
        drop = torch.where(A > 0, p - q > 0.2, p - q < -0.2)
        return (-(~drop).double() * A * rho + square) * w
    if name == "ipo":
        return (-(abs(p - q) <= 0.2).double() * A * rho + square) * w
    if name == "distill":
        a = (ref - lp).detach()
        return (-(p - q >= -0.2).double() * a * rho + square) * w
    if name == "sft":
        return -lp * w
    if name == "weighted_sft":
        return -lp * A * w
    if name == "atropos":
        x, y = rho * A, clamp(rho, 0.8, 1.2) * A
        return -torch.where(A >= 0, torch.min(x, y), torch.max(x, y)) * w
    raise KeyError(name)


def importance(d, M, level, mode, high, low, normalize):
    if level == "token":
        w = torch.exp(d)
    else:
        w = torch.exp((d * M).sum(1))[:, None] * torch.ones_like(d)
    if mode == "truncate":
        w = torch.where(w > high, torch.full_like(w, high), w)
        if low is not None:
            w = torch.where(w < low, torch.full_like(w, low), w)
    else:
        w = w * ((w <= high) & (w >= (low or 0)))
    if normalize:
        if level == "token":
            w = w / ((w * M).sum() / M.sum())
        else:
            rows = M.sum(1) > 0
            w = w / (((w * M).sum(1) / M.sum(1).clamp(min=1))[rows].mean())
    return w.detach()


def rejected(d, M, rule, high, low):
    level, k = rule.rsplit("_", 1)
    x = {"k1": -d, "k2": d * d / 2, "k3": torch.exp(d) - 1 - d}[k]
    if level == "seq_sum":
        x = (x * M).sum(1, keepdim=True).expand_as(d)
    elif level == "seq_mean":
        x = ((x * M).sum(1, keepdim=True) / M.sum(1, keepdim=True).clamp(min=1)).expand_as(d)
    elif level == "seq_max":
        x = torch.where(M > 0, x, torch.full_like(x, -math.inf)).max(1, keepdim=True).values.expand_as(d)
    if k == "k1":
        return (x < math.log(low or 1 / high)) | (x > math.log(high))
    return x > high
