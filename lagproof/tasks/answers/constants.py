"""Equality of two constants, exact or to many digits. Imported only in the processes of the pool."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import sympy
from math_verify import verify as math_verify
from sympy.core.evalf import PrecisionExhausted

from lagproof.tasks.answers.numbers import close, tolerance
from lagproof.tasks.answers.reader import UnreadableError

MAX_RESULT_DIGITS = 20_000
"""Digits of a number that is worked out; nothing longer is."""

_DIGITS = 60
_AGREEMENT = sympy.Rational(1, 10**45)


def same_number(gold: sympy.Expr, answer: sympy.Expr, *, rounded: bool) -> bool:
    """Whether two constants are equal.

    Rationals exactly, whatever their size; others to 45 significant digits, since an absolute precision calls
    ``1/2^{99}`` and ``1/2^{98}`` equal. Where one was written with a decimal point, to six decimals.

    Raises:
        UnreadableError: one is too large to be worked out.
    """
    if gold == answer:
        return True
    a, b = _work_out(gold), _work_out(answer)
    if isinstance(a, sympy.Rational) and isinstance(b, sympy.Rational):
        return close(Fraction(a.p, a.q), Fraction(b.p, b.q), rounded=rounded)
    if a.has(sympy.nan, sympy.zoo, sympy.oo) or b.has(sympy.nan, sympy.zoo, sympy.oo):
        return a == b and a not in (sympy.nan, sympy.zoo)
    try:
        near = _agree(sympy.N(a, _DIGITS, strict=True), sympy.N(b, _DIGITS, strict=True), rounded)
    except (PrecisionExhausted, TypeError, ValueError):
        near = None
    return math_verify(a, b, timeout_seconds=None, raise_on_error=True) if near is None else near


def _agree(a: Any, b: Any, rounded: bool) -> bool | None:
    """Whether two evaluated numbers agree; ``None`` where their digits cannot tell."""
    if not (a.is_number and b.is_number and a.is_finite is not False and b.is_finite is not False):
        return None
    scale = max(abs(a), abs(b))
    if rounded:
        re, im = a.as_real_imag()
        allowed = [tolerance(Fraction(str(part))) for part in (re, im)]
        gaps = [abs(Fraction(str(part))) for part in (a - b).as_real_imag()]
        return all(gap <= limit for gap, limit in zip(gaps, allowed, strict=True))
    if scale < _AGREEMENT:
        return None
    return bool(abs(a - b) <= scale * _AGREEMENT)


def _work_out(value: sympy.Expr) -> Any:
    if digits(value) > MAX_RESULT_DIGITS:
        raise UnreadableError("a number too large to be worked out")
    return value.doit()


def digits(value: Any) -> float:
    """A bound on the decimal digits that working out an expression takes; infinite for towers of powers."""
    if isinstance(value, sympy.Rational):
        return (abs(value.p).bit_length() + value.q.bit_length()) * math.log10(2) + 1
    if isinstance(value, sympy.Pow):
        return max(1.0, digits(value.base)) * max(1.0, _size(value.exp))
    if isinstance(value, sympy.factorial | sympy.gamma):
        n = _size(value.args[0])
        return n * math.log10(n + 10)
    if isinstance(value, sympy.binomial):
        n, k = _size(value.args[0]), _size(value.args[1])
        return min(k, max(n - k, 0)) * math.log10(n + 10) if k < math.inf else math.inf
    return 1 + sum(digits(arg) for arg in value.args) if value.args else 1.0


def _size(value: Any) -> float:
    """Absolute value of a constant, roughly; 1 for what has symbols in it."""
    if value.free_symbols:
        return 1.0
    return float(abs(sympy.N(value.doit(), 5))) if digits(value) < 9 else math.inf
