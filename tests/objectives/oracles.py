"""The textbook surrogate of every objective: plain loops over tokens in float64, differentiated by autograd.

Written from the formulas, sharing nothing with the package. ``rows`` is a list of responses, each a list of
``(log pi, log mu, A, log pi_anchor, age)`` with ``log pi`` a float64 scalar that requires grad. Returns J, maximised,
under the reduction that is asked for.
"""

from __future__ import annotations

import math

import numpy as np
import torch

Row = list[tuple[torch.Tensor, float, float, float, int]]


def reduce(rows: list[list[torch.Tensor]], reduction: str, max_tokens: int = 7) -> torch.Tensor:
    rows = [r for r in rows if r]
    if reduction == "response_mean":
        return sum(sum(r) / len(r) for r in rows) / len(rows)
    if reduction == "token_mean":
        return sum(sum(r) for r in rows) / sum(len(r) for r in rows)
    if reduction == "response_sum":
        return sum(sum(r) for r in rows) / len(rows)
    assert reduction == "constant"
    return sum(sum(r) for r in rows) / (len(rows) * max_tokens)


def plain(rows: list[Row]) -> list[list[torch.Tensor]]:
    return [[a * lp for lp, _, a, *_ in row] for row in rows]


def spo(rows: list[Row], alpha: float = 0.2) -> list[list[torch.Tensor]]:
    return [[(a if a >= 0 else alpha * a) * lp for lp, _, a, *_ in row] for row in rows]


def asympo(rows: list[Row], floor: float = 0.01) -> list[list[torch.Tensor]]:
    out = []
    for row in rows:
        scale = max(sum(-lp.item() for lp, *_ in row) / max(len(row), 1), floor)
        out.append([-a * (-lp) / scale for lp, _, a, *_ in row])
    return out


def ppo_term(log_ratio: torch.Tensor, a: float, low: float, high: float) -> torch.Tensor:
    r = torch.exp(log_ratio.clamp(-20, 20))
    return torch.minimum(r * a, torch.clamp(r, 1 - low, 1 + high) * a)


def grpo(rows: list[Row], low: float = 0.2, high: float = 0.2) -> list[list[torch.Tensor]]:
    return [[ppo_term(lp - mu, a, low, high) for lp, mu, a, *_ in row] for row in rows]


def gspo(rows: list[Row], low: float = 3e-4, high: float = 4e-4) -> list[list[torch.Tensor]]:
    """One ratio a response; with the same A on its tokens each term is J of the response."""
    out = []
    for row in rows:
        if not row:
            out.append([])
            continue
        mean = sum(lp - mu for lp, mu, *_ in row) / len(row)
        out.append([ppo_term(mean, a, low, high) for _, _, a, *_ in row])
    return out


def hill(u: float, q: float) -> float:
    return 1 / (1 + (u / q) ** 2) if q > 0 and u > q else 1.0


def shrink(d: float, q: float, low: float, high: float) -> tuple[float, float]:
    c = hill(abs(d), q)
    return (low, high * c) if d > 0 else (low * c, high)


def sat_grpo(
    rows: list[Row], low=0.2, high=0.2, alpha=0.9, risk="log_ratio", form="drop-in"
) -> list[list[torch.Tensor]]:
    if risk == "staleness":
        return sat_staleness(rows, low, high, alpha, form)
    q = float(np.quantile([abs(lp.item() - mu) for row in rows for lp, mu, *_ in row], alpha))
    return [[ppo_term(lp - mu, a, *shrink(lp.item() - mu, q, low, high)) for lp, mu, a, *_ in row] for row in rows]


def sat_gspo(
    rows: list[Row], low=3e-4, high=4e-4, alpha=0.9, risk="log_ratio", form="drop-in"
) -> list[list[torch.Tensor]]:
    if risk == "staleness":
        return sat_staleness_gspo(rows, low, high, alpha, form)
    means = [sum(lp - mu for lp, mu, *_ in row) / len(row) if row else None for row in rows]
    q = float(np.quantile([abs(m.item()) for m in means if m is not None], alpha))
    return [
        [ppo_term(m, a, *shrink(m.item(), q, low, high)) for _, _, a, *_ in row] if m is not None else []
        for row, m in zip(rows, means, strict=True)
    ]


def dppo_tv(rows: list[Row], delta: float = 0.15) -> list[list[torch.Tensor]]:
    def term(lp: torch.Tensor, mu: float, a: float) -> torch.Tensor:
        moved = math.exp(lp.item()) - math.exp(mu)
        dropped = (a > 0 and moved > delta) or (a < 0 and moved < -delta)
        return 0.0 * lp if dropped else math.exp(lp.item() - mu) * a * lp

    return [[term(*t[:3]) for t in row] for row in rows]


def dppo_kl(rows: list[Row], delta: float = 0.05) -> list[list[torch.Tensor]]:
    def term(lp: torch.Tensor, mu: float, a: float) -> torch.Tensor:
        p, m = math.exp(lp.item()), math.exp(mu)
        kl = m * (mu - lp.item()) + ((1 - m) * math.log((1 - m) / (1 - p)) if m < 1 else 0.0)
        dropped = (a > 0 and kl > delta and p > m) or (a < 0 and kl > delta and p < m)
        return 0.0 * lp if dropped else math.exp(lp.item() - mu) * a * lp

    return [[term(*t[:3]) for t in row] for row in rows]


def cispo(rows: list[Row], low: float = 0.0, high: float = 5.0) -> list[list[torch.Tensor]]:
    return [[min(max(math.exp(lp.item() - mu), low), high) * a * lp for lp, mu, a, *_ in row] for row in rows]


def tis(rows: list[Row], cap: float = 2.0) -> list[list[torch.Tensor]]:
    return [[min(math.exp(lp.item() - mu), cap) * a * lp for lp, mu, a, *_ in row] for row in rows]


def bounded(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.clamp(-20, 20))


def dis(rows: list[Row], low: float = 0.3, high: float = 5.0) -> list[list[torch.Tensor]]:
    def term(lp: torch.Tensor, mu: float, a: float) -> torch.Tensor:
        r = math.exp(lp.item() - mu)
        return r * a * lp if 1 - low < r < 1 + high else 0.0 * lp

    return [[term(*t[:3]) for t in row] for row in rows]


def engine_factor(e: float, how: str, floor: float, cap: float) -> float:
    x = math.exp(e)
    inside = floor <= x <= cap
    return {
        "truncate": min(x, cap),
        "clamp": min(max(x, floor), cap),
        "mask": x if inside else 0.0,
        "gate": 1.0 if inside else 0.0,
        "none": 1.0,
    }[how]


def decoupled_grpo(rows, low=0.2, high=0.2, correction="truncate", floor=0.5, cap=2.0):
    return [
        [
            engine_factor(anchor - mu, correction, floor, cap) * ppo_term(lp - anchor, a, low, high)
            for lp, mu, a, anchor, _ in row
        ]
        for row in rows
    ]


def decoupled_gspo(rows, low=3e-4, high=4e-4, correction="truncate", floor=0.5, cap=2.0):
    out = []
    for row in rows:
        m = max(len(row), 1)
        update = sum(lp - anchor for lp, _, _, anchor, _ in row) / m
        c = engine_factor(sum(anchor - mu for _, mu, _, anchor, _ in row) / m, correction, floor, cap)
        out.append([c * ppo_term(update, a, low, high) for _, _, a, *_ in row])
    return out


def icepop(rows, low=0.2, high=0.2, floor=0.5, cap=5.0):
    return decoupled_grpo(rows, low, high, "gate", floor, cap)


def minirl(rows, low=0.2, high=0.27, cap=5.0):
    def term(lp, mu, a, anchor, _):
        moved = math.exp(lp.item() - anchor)
        dropped = (a > 0 and moved > 1 + high) or (a < 0 and moved < 1 - low)
        return 0.0 * lp if dropped else min(math.exp(lp.item() - mu), cap) * a * lp

    return [[term(*t) for t in row] for row in rows]


def a3po(rows, low=0.2, high=0.2):
    def term(lp, mu, a, _, age):
        k = max(age, 1)
        c = math.exp((lp.item() - mu) * (k - 1) / k)
        # the anchor lies at a constant place between the two: only the policy's own end moves with its logp
        anchor = mu + (lp.item() - mu) * (k - 1) / k
        return c * ppo_term(lp - anchor, a, low, high)

    return [[term(*t) for t in row] for row in rows]


def m2po(rows, tau=0.04, form="drop"):
    harmful = sorted((lp.item() - mu) ** 2 for row in rows for lp, mu, a, *_ in row if a * (lp.item() - mu) > 0)
    if form == "winsorised":
        low, high = 0.0, 1e3  # bisect for the limit
        if sum(harmful) <= tau * len(harmful):
            low = high = math.inf
        for _ in range(200):
            t = (low + high) / 2
            low, high = (low, t) if sum(min(x, t * t) for x in harmful) > tau * len(harmful) else (t, high)
        return [[clipped_at(lp - mu, a, math.exp(-low), math.exp(low)) for lp, mu, a, *_ in row] for row in rows]
    while harmful and sum(harmful) / len(harmful) >= tau:
        harmful.pop()
    largest = harmful[-1] if harmful else 0.0

    def term(lp, mu, a, *_):
        d = lp.item() - mu
        return 0.0 * lp if a * d > 0 and d * d > largest else bounded(lp - mu) * a

    return [[term(*t) for t in row] for row in rows]


def clipped_at(log_ratio: torch.Tensor, a: float, low: float, high: float) -> torch.Tensor:
    r = bounded(log_ratio)
    return torch.minimum(r * a, torch.clamp(r, low, high) * a)


def sapo(rows, tau_positive=1.0, tau_negative=1.05):
    def term(lp, mu, a, *_):
        tau = tau_negative if a < 0 else tau_positive
        return 4 / tau * torch.sigmoid(tau * (bounded(lp - mu) - 1)) * a

    return [[term(*t) for t in row] for row in rows]


def product(row: Row) -> float:
    return math.exp(min(max(sum(lp.item() - mu for lp, mu, *_ in row), -20), 20))


def seq_tis(rows, cap=2.0, form="truncate", floor=0.0, normalise="none"):
    def factor(row):
        w = product(row)
        return min(w, cap) if form == "truncate" else (w if floor <= w <= cap else 0.0)

    mean = sum(factor(row) for row in rows if row) / sum(bool(row) for row in rows) if normalise == "batch" else 1.0
    return [[factor(row) / mean * a * lp for lp, _, a, *_ in row] for row in rows]


def topr(rows, level="response", cap=1.0):
    def factor(row, lp, mu, a):
        ratio = product(row) if level == "response" else math.exp(lp.item() - mu)
        return min(ratio, cap) if a < 0 else 1.0

    return [[factor(row, lp, mu, a) * a * lp for lp, mu, a, *_ in row] for row in rows]


def vespo(rows):
    def factor(row, a):
        k, decay = (3.0, 2.0) if a < 0 else (2.0, 3.0)
        return product(row) ** k * math.exp(decay * (1 - product(row)))

    return [[factor(row, a) * a * lp for lp, _, a, *_ in row] for row in rows]


def pmd(rows, beta=0.1, level="token"):
    if level == "token":
        return [[a * lp - beta / 2 * (lp - mu) ** 2 for lp, mu, a, *_ in row] for row in rows]
    totals = [sum(lp - mu for lp, mu, *_ in row) for row in rows]
    return [
        [a * lp - beta / 2 * total**2 / len(row) for lp, _, a, *_ in row]
        for row, total in zip(rows, totals, strict=True)
    ]


def oapl(rows, beta=1e-3):
    totals = [sum(lp - mu for lp, mu, *_ in row) for row in rows]
    return [
        [-((beta * total - a) ** 2) / len(row) for _, _, a, *_ in row] for row, total in zip(rows, totals, strict=True)
    ]


def sat_staleness(rows, low, high, alpha, form):
    q = float(np.quantile([abs(lp.item() - anchor) for row in rows for lp, _, _, anchor, _ in row], alpha))

    def term(lp, mu, a, anchor, _):
        radii = shrink(lp.item() - anchor, q, low, high)
        if form == "drop-in":
            return ppo_term(lp - mu, a, *radii)
        return min(math.exp(anchor - mu), 2.0) * ppo_term(lp - anchor, a, *radii)

    return [[term(*t) for t in row] for row in rows]


def sat_staleness_gspo(rows, low, high, alpha, form):
    def means(row):
        n = len(row)
        return (
            sum(lp - anchor for lp, _, _, anchor, _ in row) / n,
            sum(lp - mu for lp, mu, *_ in row) / n,
            sum(anchor - mu for _, mu, _, anchor, _ in row) / n,
        )

    found = [means(row) if row else None for row in rows]
    q = float(np.quantile([abs(m[0].item()) for m in found if m is not None], alpha))
    out = []
    for row, m in zip(rows, found, strict=True):
        if m is None:
            out.append([])
            continue
        update, total, engine = m
        radii = shrink(update.item(), q, low, high)
        c, x = (1.0, total) if form == "drop-in" else (min(math.exp(engine), 2.0), update)
        out.append([c * ppo_term(x, a, *radii) for _, _, a, *_ in row])
    return out


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
    "dis": dis,
    "sapo": sapo,
    "m2po": m2po,
    "a3po": a3po,
    "seq-tis": seq_tis,
    "topr": topr,
    "vespo": vespo,
    "pmd": pmd,
    "oapl": oapl,
    "decoupled-grpo": decoupled_grpo,
    "decoupled-gspo": decoupled_gspo,
    "icepop": icepop,
    "minirl": minirl,
}
