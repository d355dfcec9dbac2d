"""The textbook surrogate of every objective: plain loops over tokens in float64, differentiated by autograd.

Written from the formulas, sharing nothing with the package. ``rows`` is a list of responses, each a list of
``(log pi, log mu, A)`` with ``log pi`` a float64 scalar that requires grad. Returns J, maximised, under the reduction
that is asked for.
"""

from __future__ import annotations

import math

import numpy as np
import torch

Row = list[tuple[torch.Tensor, float, float]]


def reduce(rows: list[list[torch.Tensor]], reduction: str, max_tokens: int = 7) -> torch.Tensor:
    rows = [r for r in rows if r]
    if reduction == "response_mean":
        return sum(sum(r) / len(r) for r in rows) / len(rows)
    if reduction == "token_mean":
        return sum(sum(r) for r in rows) / sum(len(r) for r in rows)
    assert reduction == "constant"
    return sum(sum(r) for r in rows) / (len(rows) * max_tokens)


def plain(rows: list[Row]) -> list[list[torch.Tensor]]:
    return [[a * lp for lp, _, a in row] for row in rows]


def spo(rows: list[Row], alpha: float = 0.2) -> list[list[torch.Tensor]]:
    return [[(a if a >= 0 else alpha * a) * lp for lp, _, a in row] for row in rows]


def asympo(rows: list[Row], floor: float = 0.01) -> list[list[torch.Tensor]]:
    out = []
    for row in rows:
        scale = max(sum(-lp.item() for lp, _, _ in row) / max(len(row), 1), floor)
        out.append([-a * (-lp) / scale for lp, _, a in row])
    return out


def ppo_term(log_ratio: torch.Tensor, a: float, low: float, high: float) -> torch.Tensor:
    r = torch.exp(log_ratio.clamp(-20, 20))
    return torch.minimum(r * a, torch.clamp(r, 1 - low, 1 + high) * a)


def grpo(rows: list[Row], low: float = 0.2, high: float = 0.2) -> list[list[torch.Tensor]]:
    return [[ppo_term(lp - mu, a, low, high) for lp, mu, a in row] for row in rows]


def gspo(rows: list[Row], low: float = 3e-4, high: float = 4e-4) -> list[list[torch.Tensor]]:
    """One ratio a response; with the same A on its tokens each term is J of the response."""
    out = []
    for row in rows:
        if not row:
            out.append([])
            continue
        mean = sum(lp - mu for lp, mu, _ in row) / len(row)
        out.append([ppo_term(mean, a, low, high) for _, _, a in row])
    return out


def hill(u: float, q: float) -> float:
    return 1 / (1 + (u / q) ** 2) if q > 0 and u > q else 1.0


def shrink(d: float, q: float, low: float, high: float) -> tuple[float, float]:
    c = hill(abs(d), q)
    return (low, high * c) if d > 0 else (low * c, high)


def sat_grpo(rows: list[Row], low: float = 0.2, high: float = 0.2, alpha: float = 0.9) -> list[list[torch.Tensor]]:
    q = float(np.quantile([abs(lp.item() - mu) for row in rows for lp, mu, _ in row], alpha))
    return [[ppo_term(lp - mu, a, *shrink(lp.item() - mu, q, low, high)) for lp, mu, a in row] for row in rows]


def sat_gspo(rows: list[Row], low: float = 3e-4, high: float = 4e-4, alpha: float = 0.9) -> list[list[torch.Tensor]]:
    means = [sum(lp - mu for lp, mu, _ in row) / len(row) if row else None for row in rows]
    q = float(np.quantile([abs(m.item()) for m in means if m is not None], alpha))
    return [
        [ppo_term(m, a, *shrink(m.item(), q, low, high)) for _, _, a in row] if m is not None else []
        for row, m in zip(rows, means, strict=True)
    ]


def dppo_tv(rows: list[Row], delta: float = 0.15) -> list[list[torch.Tensor]]:
    def term(lp: torch.Tensor, mu: float, a: float) -> torch.Tensor:
        moved = math.exp(lp.item()) - math.exp(mu)
        dropped = (a > 0 and moved > delta) or (a < 0 and moved < -delta)
        return 0.0 * lp if dropped else math.exp(lp.item() - mu) * a * lp

    return [[term(*t) for t in row] for row in rows]


def dppo_kl(rows: list[Row], delta: float = 0.05) -> list[list[torch.Tensor]]:
    def term(lp: torch.Tensor, mu: float, a: float) -> torch.Tensor:
        p, m = math.exp(lp.item()), math.exp(mu)
        kl = m * (mu - lp.item()) + ((1 - m) * math.log((1 - m) / (1 - p)) if m < 1 else 0.0)
        dropped = (a > 0 and kl > delta and p > m) or (a < 0 and kl > delta and p < m)
        return 0.0 * lp if dropped else math.exp(lp.item() - mu) * a * lp

    return [[term(*t) for t in row] for row in rows]


def cispo(rows: list[Row], low: float = 0.0, high: float = 5.0) -> list[list[torch.Tensor]]:
    return [[min(max(math.exp(lp.item() - mu), low), high) * a * lp for lp, mu, a in row] for row in rows]


def tis(rows: list[Row], cap: float = 2.0) -> list[list[torch.Tensor]]:
    return [[min(math.exp(lp.item() - mu), cap) * a * lp for lp, mu, a in row] for row in rows]


def icepop(rows: list[Row], low: float = 0.5, high: float = 5.0) -> list[list[torch.Tensor]]:
    def term(lp: torch.Tensor, mu: float, a: float) -> torch.Tensor:
        r = torch.exp((lp - mu).clamp(-20, 20))
        return r * a if low <= r.item() <= high else 0.0 * lp

    return [[term(*t) for t in row] for row in rows]


ORACLES = {
    "naive": plain,
    "spo": spo,
    "asympo": asympo,
    "gpg": plain,
    "grpo": grpo,
    "gspo": gspo,
    "sat-grpo": sat_grpo,
    "sat-gspo": sat_gspo,
    "dppo-tv": dppo_tv,
    "dppo-kl": dppo_kl,
    "cispo": cispo,
    "tis": tis,
    "icepop": icepop,
}
