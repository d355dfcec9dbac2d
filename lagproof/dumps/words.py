"""What ``whatif`` found of each objective, in a sentence or two."""

from __future__ import annotations

from lagproof.data.slices import Sign
from lagproof.dumps.tally import Mass
from lagproof.dumps.whatif import ObjectiveEffect, WhatIf

ONE_SIDED = 3.0
"""How many times the share of one sign must be that of the other to be worth saying."""
NOTHING = 0.0005
"""Share that would be shown as 0.0%."""
WORTH_SAYING = 0.02
"""Share of the gradient mass below which no more is said of it."""


def verdicts(found: WhatIf) -> list[tuple[str, str]]:
    """The label of each objective and what is said of it, the baseline first."""
    return [(c.choice.label, verdict(c, found.baseline, is_baseline=k == 0)) for k, c in enumerate(found.comparisons)]


def verdict(c: ObjectiveEffect, baseline: str, *, is_baseline: bool = False) -> str:
    """What an objective does on these tokens, and what that is against the baseline; continues its name."""
    parts: list[str] = []
    if c.finding is not None:
        parts.append(c.finding.sentence.removeprefix(f"{c.choice.objective.name} "))
    if is_baseline:
        parts.append(f"is the baseline{_rejected(c)}")
    elif not c.differs:
        parts.append(f"gives every token the weight that {baseline} gives it")
    else:
        cosine = "" if c.cosine is None else f"; cosine {c.cosine:.3f}"
        parts.append(f"gives {c.differs:.1%} of the tokens another weight than {baseline}{_fate(c)}{cosine}")
    return ". It ".join(parts) + "."


def particular(c: ObjectiveEffect) -> str:
    """The finding, under the label of its objective."""
    assert c.finding is not None
    label, sentence = c.choice.label, c.finding.sentence
    return f"{label}: {sentence}" if ":" in label else sentence


def percent(share: float | None) -> str:
    """``12.3%``, or ``15x`` where it is more than tenfold."""
    if share is None:
        return "-"
    return f"{share:.1%}" if share < 9.995 else f"{share:.0f}x"


def _rejected(c: ObjectiveEffect) -> str:
    high, low = (c.stats.get(f"clipped_{side}") for side in ("high", "low"))
    parts = [f"{percent(x)} of the tokens {where}" for x, where in ((high, "above"), (low, "below")) if x is not None]
    return f", and rejects {' and '.join(parts)}" if parts else ""


def _fate(c: ObjectiveEffect) -> str:
    shares = c.mass[None].shares
    if not shares:
        return ""
    removed, added = (
        f"{verb} {percent(shares[name])}{_side(c, name)}" if shares[name] >= NOTHING else f"{verb} nothing"
        for verb, name in (("removes", "removed"), ("adds", "added"))
    )
    return f"; of the gradient mass it {removed} and {added}"


def _side(c: ObjectiveEffect, name: str) -> str:
    """Where it is nearly all of one sign."""
    nothing = Mass(0.0, 0.0, 0.0)
    up, down = (c.mass.get(sign, nothing).shares.get(name, 0.0) for sign in Sign)
    if max(up, down) < WORTH_SAYING or max(up, down) < ONE_SIDED * min(up, down):
        return ""
    larger = "A > 0" if up > down else "A < 0"
    return f" ({percent(max(up, down))} where {larger})"
