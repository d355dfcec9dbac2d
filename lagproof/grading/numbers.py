"""Plain numbers, read exactly and without algebra: the ordinary case of an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 1000
"""Digits of a number that is compared here; longer ones are left to the verifier and its limits."""

_UNSIGNED = r"\d*\.\d+|\d+\.?"
_FRACTION = r"\\frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(-?\d+)\s*\}"
_DECIMAL = re.compile(rf"^({_UNSIGNED})")
_SLASH = re.compile(r"^\(?(\d+)\s*/\s*(\d+)\)?")
_LATEX = re.compile("^" + _FRACTION)
_MIXED = re.compile(rf"^(?:(\d+) ?{_FRACTION}|(\d+) (\d+) ?/ ?(\d+))")
_SCIENTIFIC = re.compile(rf"^(?:({_UNSIGNED})\s*(?:\\cdot|\\times)\s*)?10\s*\^\s*(?:\{{\s*(-?\d{{1,3}})\s*\}}|(\d))")
_NAMES = "zero one two three four five six seven eight nine ten eleven twelve"
_WORDS = {word: value for value, word in enumerate(_NAMES.split())}
_PERCENT = re.compile(r" ?\\?%$")
_COMMA_DECIMAL = re.compile(r"^0,\d+")


@dataclass(frozen=True)
class Number:
    """A number as it was written.

    Attributes:
        value: its exact value, without the percent sign.
        decimal: whether it was written with a decimal point, so that rounding may be meant.
        percent: whether a percent sign followed.
    """

    value: Fraction
    decimal: bool = False
    percent: bool = False


def read(text: str) -> Number | None:
    """The number that a cleaned text is, or ``None`` if it is anything else."""
    if len(text) > MAX_DIGITS:
        return None
    body, percents = _PERCENT.subn("", text.strip())
    sign = 1
    while body[:1] in ("+", "-"):
        sign, body = (-sign if body[0] == "-" else sign), body[1:].strip()
    value = _unsigned(body)
    if value is None:
        return None
    return Number(sign * value, "." in body or _COMMA_DECIMAL.fullmatch(body) is not None, percents > 0)


def equal(gold: Number, answer: Number) -> bool:
    """Whether two numbers are the same; a percentage stands for itself and for its hundredth."""
    if gold.percent == answer.percent:
        pairs = [(gold.value, answer.value)]
    elif gold.percent:
        pairs = [(gold.value, answer.value), (gold.value / 100, answer.value)]
    else:
        pairs = [(gold.value, answer.value), (gold.value, answer.value / 100)]
    return any(close(g, a, rounded=gold.decimal or answer.decimal) for g, a in pairs)


def close(gold: Fraction, answer: Fraction, *, rounded: bool) -> bool:
    """Exact equality; where a decimal point was written, equality to six decimals and to six significant digits."""
    return abs(gold - answer) <= tolerance(gold) if rounded else gold == answer


def tolerance(gold: Fraction) -> Fraction:
    """Half a unit in the sixth decimal, and never more than half a unit in the sixth significant digit."""
    return min(Fraction(1, 2_000_000), abs(gold) * Fraction(5, 1_000_000))


def _unsigned(body: str) -> Fraction | None:
    if match := _DECIMAL.fullmatch(body):
        return _decimal(match[1])
    if match := _SLASH.fullmatch(body):
        return _ratio(match[1], match[2])
    if match := _LATEX.fullmatch(body):
        return _ratio(match[1], match[2])
    if match := _MIXED.fullmatch(body):
        whole, top, bottom = (match[1], match[2], match[3]) if match[1] else (match[4], match[5], match[6])
        part = _ratio(top, bottom)
        return None if part is None or part < 0 else int(whole) + part
    if match := _SCIENTIFIC.fullmatch(body):
        return _decimal(match[1] or "1") * Fraction(10) ** int(match[2] or match[3])
    if _COMMA_DECIMAL.fullmatch(body):
        return Fraction(body.replace(",", "."))
    return Fraction(_WORDS[body.lower()]) if body.lower() in _WORDS else None


def _decimal(text: str) -> Fraction:
    return Fraction(text.rstrip("."))


def _ratio(top: str, bottom: str) -> Fraction | None:
    return Fraction(int(top), int(bottom)) if int(bottom) else None
