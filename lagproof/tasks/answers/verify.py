"""Algebra on two cleaned answers: math-verify reads and compares, with what it gets wrong put right.

Imported only in the processes of the pool: what is asked here may hang, and may want any amount of memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import sympy
from latex2sympy2_extended.sets import FiniteSet
from math_verify import verify as math_verify

from lagproof.tasks.answers import numbers
from lagproof.tasks.answers.clean import split_top
from lagproof.tasks.answers.constants import same_number
from lagproof.tasks.answers.judge import Verdict
from lagproof.tasks.answers.reader import UnreadableError, read

_PROBES = ((7, 11), (13, 3))
"""Numerators and denominators of the points at which two expressions are compared."""
_VARIABLE = re.compile(r"(?<![A-Za-z\\])[A-DF-Za-df-hj-z](?![A-Za-z])")


def compare(gold: str, answer: str) -> Verdict:
    """Whether two cleaned answers are the same mathematics."""
    try:
        right = read(gold)
    except UnreadableError:
        return Verdict.BAD_GOLD
    if gold == answer:
        return Verdict.CORRECT
    try:
        return Verdict.CORRECT if _compare(right, gold, answer) else Verdict.WRONG
    except UnreadableError:
        return Verdict.UNPARSED


def _compare(right: Any, gold: str, answer: str) -> bool:
    rounded = "." in gold or "." in answer
    if not _constants_agree(answer, rounded):
        return False
    equations = _has_equation(gold), _has_equation(answer)
    if equations == (False, True):
        answer = _without_names(answer)
    elif equations == (True, False):
        right, gold = read(_without_names(gold)), _without_names(gold)
    plain = numbers.read(gold), numbers.read(answer)
    if plain[0] is not None and plain[1] is not None:
        return numbers.equal(plain[0], plain[1])
    return equal(right, read(answer), rounded)


def equal(gold: Any, answer: Any, rounded: bool) -> bool:
    """Whether two expressions are equal: exactly in structure, mathematically in their parts."""
    if _is_constant(gold) and _is_constant(answer):
        return same_number(gold, answer, rounded=rounded)
    if _is_region(gold) != _is_region(answer):
        gold, answer = _region(gold), _region(answer)
    if isinstance(gold, sympy.MatrixBase) and isinstance(answer, sympy.MatrixBase):
        return gold.shape == answer.shape and _all_equal(gold.flat(), answer.flat(), rounded)
    if isinstance(gold, sympy.Interval) and isinstance(answer, sympy.Interval):
        open_ends = (gold.left_open, gold.right_open) == (answer.left_open, answer.right_open)
        return open_ends and _all_equal(gold.args[:2], answer.args[:2], rounded)
    right, given = _as_tuple(gold), _as_tuple(answer)
    if right is not None and given is not None:
        in_order = not isinstance(gold, FiniteSet)
        return _all_equal(right, given, rounded) if in_order else _same_elements(right, given, rounded)
    if right is not None and isinstance(answer, sympy.Expr):
        return len(right) == 1 and equal(right[0], answer, rounded)
    if given is not None and isinstance(gold, sympy.Expr):
        return len(given) == 1 and equal(gold, given[0], rounded)
    return _algebraically_equal(gold, answer, rounded)


def _constants_agree(text: str, rounded: bool) -> bool:
    """Whether each chain ``a = b = c`` of a list has only one value: ``x = 5 = 7`` says nothing."""
    for part in split_top(text, ",;"):
        members = [member.strip() for member in split_top(part, "=")]
        if len(members) == 1:
            continue
        values = [v for member in members if not _VARIABLE.search(member) and _is_constant(v := _try_read(member))]
        if not all(equal(values[0], value, rounded) for value in values[1:]):
            return False
    return True


def _has_equation(text: str) -> bool:
    return any(len(split_top(part, "=")) > 1 for part in split_top(text, ",;"))


def _without_names(text: str) -> str:
    """The last member of every chain of a list; the one before it where a lone symbol comes last (``7 = x``)."""
    return ", ".join(_value_of_chain(part) for part in split_top(text, ",;"))


def _value_of_chain(part: str) -> str:
    *before, last = (member.strip() for member in split_top(part, "="))
    swapped = before and isinstance(_try_read(last), sympy.Symbol) and _is_constant(_try_read(before[-1]))
    return before[-1] if swapped else last


def _try_read(text: str) -> Any:
    try:
        return read(text)
    except UnreadableError:
        return None


def _is_constant(value: Any) -> bool:
    return isinstance(value, sympy.Expr) and not value.free_symbols


def _is_region(value: Any) -> bool:
    return isinstance(value.rhs if isinstance(value, sympy.Eq) else value, sympy.Interval | sympy.Union)


def _region(value: Any) -> Any:
    r"""The numbers that ``0\le x<1``, or several with an "or", describe; else the value as it is."""
    if isinstance(value, FiniteSet):
        parts = [_region(part) for part in vars(value)["_unsorted_args"]]
        return sympy.Union(*parts) if all(map(_is_region, parts)) else value
    if isinstance(value, sympy.core.relational.Relational | sympy.And) and not isinstance(value, sympy.Eq):
        with suppress(NotImplementedError):  # several variables, or nothing that sympy can solve
            return value.as_set()
    return value


def _as_tuple(value: Any) -> Sequence[Any] | None:
    """Elements as they were written; ``(1, 2)`` is read as an open interval and may be a point."""
    if isinstance(value, sympy.Tuple):
        return value.args
    if isinstance(value, sympy.Interval) and value.left_open and value.right_open:
        return value.args[:2]
    return vars(value)["_unsorted_args"] if isinstance(value, FiniteSet) else None


def _all_equal(gold: Sequence[Any], answer: Sequence[Any], rounded: bool) -> bool:
    return len(gold) == len(answer) and all(equal(g, a, rounded) for g, a in zip(gold, answer, strict=True))


def _same_elements(gold: Sequence[Any], answer: Sequence[Any], rounded: bool) -> bool:
    """Equality of sets: each element of one finds its own partner in the other."""
    rest = list(answer)
    for g in gold:
        partner = next((i for i, a in enumerate(rest) if equal(g, a, rounded)), None)
        if partner is None:
            return False
        del rest[partner]
    return not rest


def _algebraically_equal(gold: Any, answer: Any, rounded: bool) -> bool:
    """math-verify's verdict, where two expressions in the same symbols agree at two points.

    The points come first since they are cheap, and decide most wrong answers. They also stop what it calls equal only
    because it compares with an absolute precision of 15 digits, such as ``x/2^{99}`` and ``x/2^{98}``.
    """
    if isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr) and gold.free_symbols == answer.free_symbols:
        symbols = sorted(gold.free_symbols, key=str)
        for top, bottom in _PROBES:
            point = [(symbol, sympy.Rational(top + 2 * i, bottom + i)) for i, symbol in enumerate(symbols)]
            values = gold.subs(point), answer.subs(point)
            if all(map(_is_constant, values)) and not same_number(*values, rounded=rounded):
                return False
    return math_verify(gold, answer, timeout_seconds=None, raise_on_error=True)
