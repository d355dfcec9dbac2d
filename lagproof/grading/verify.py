"""Algebra on two cleaned answers: math-verify reads and compares, with what it gets wrong put right.

Imported only in the processes of the pool: what is asked here may hang, and may want any amount of memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import sympy
from latex2sympy2_extended.sets import FiniteSet
from math_verify import verify as math_verify
from math_verify.grader import sympy_symbolic_eq
from sympy.core.relational import Eq, Relational

from lagproof.grading import numbers
from lagproof.grading.clean import split_top
from lagproof.grading.constants import same_number
from lagproof.grading.equations import chains_agree, coordinates, has_equation, without_names
from lagproof.grading.judge import Verdict
from lagproof.grading.notation import both_signs, is_time, ratio, set_condition
from lagproof.grading.reader import UnreadableError, is_complex, is_constant, read
from lagproof.grading.relations import is_region, region, same_equation, same_relation, same_set, solutions

_PROBES = ((7, 11), (13, 3))
"""Numerators and denominators of the points at which two expressions are compared."""


def compare(gold: str, answer: str) -> Verdict:
    """Whether two cleaned answers are the same mathematics."""
    described = _as_sets(gold, answer)
    if described is not None:
        return Verdict.CORRECT if described else Verdict.WRONG
    gold, answer = (re.sub(r" ?\\l(?:and|or) ?", ", ", both_signs(text)) for text in (gold, answer))
    reader = partial(read, real=not (is_complex(gold) or is_complex(answer)))
    ratios = ratio(gold), ratio(answer)
    try:
        terms = [reader(term) for term in ratios[0] or (gold,)]
    except UnreadableError:
        return Verdict.BAD_GOLD
    if gold == answer:
        return Verdict.CORRECT
    try:
        if ratios[0] is not None and (ratios[1] is not None or len(terms) > 2):
            times = is_time(gold) and is_time(answer)
            same = ratios[1] is not None and not times and _same_ratio(terms, list(map(reader, ratios[1])))
        else:
            same = _compare(gold, answer, reader)
        return Verdict.CORRECT if same else Verdict.WRONG
    except UnreadableError:
        return Verdict.UNPARSED


def _as_sets(gold: str, answer: str) -> bool | None:
    r"""Whether both are the same set where one is given by "and", "or" or ``\{x \mid x<3\}``; else ``None``."""
    conditions = set_condition(gold), set_condition(answer)
    if conditions == (None, None) and not re.search(r"\\l(?:and|or) ", gold + answer):
        return None
    sets = [solutions(condition or text, read) for condition, text in zip(conditions, (gold, answer), strict=True)]
    return None if sets[0] is None or sets[1] is None else same_set(sets[0], sets[1])


def _same_ratio(gold: Sequence[Any], answer: Sequence[Any]) -> bool:
    """``3:4:5`` and ``6:8:10``: every term in the proportion of the first ones."""
    if len(gold) != len(answer) or not all(isinstance(v, sympy.Expr) for v in (*gold, *answer)):
        return False
    at = next((i for i, g in enumerate(gold) if g != 0), None)
    if at is None or answer[at].is_zero or any(v.is_finite is False for v in answer):
        return False
    products = ((g * answer[at], a * gold[at]) for g, a in zip(gold, answer, strict=True))
    return all(equal(g, a, rounded=False) for g, a in products)


def _compare(gold: str, answer: str, reader: Callable[[str], Any]) -> bool:
    rounded = "." in gold or "." in answer
    if not chains_agree(answer, reader, lambda a, b: equal(a, b, rounded)):
        return False
    if _is_pair(gold, "()") and _is_pair(answer, "[]"):  # (2,-3) is a point: its bounds would be in the wrong order
        return False
    gold, answer = _as_points(gold, answer)
    equations = has_equation(gold), has_equation(answer)
    if equations == (False, True):
        answer = without_names(answer, reader, of_gold=False)
    elif equations == (True, False):
        gold = without_names(gold, reader, of_gold=True)
    plain = numbers.read(gold), numbers.read(answer)
    if plain[0] is not None and plain[1] is not None:
        return numbers.equal(plain[0], plain[1])
    return equal(reader(gold), reader(answer), rounded)


def _is_pair(text: str, brackets: str) -> bool:
    return text[:1] + text[-1:] == brackets and len(split_top(text[1:-1], ",")) == 2


def _as_points(gold: str, answer: str) -> tuple[str, str]:
    """Where one side has names (``x=1, y=2``) and the other has none, both as points: then the order counts."""
    named = coordinates(gold), coordinates(answer)
    if named[0] and named[0].keys() == named[1].keys():
        return tuple(f"({', '.join(v for _, v in sorted(each.items(), key=_spelt))})" for each in named)  # type: ignore[return-value]
    if named[0] and not has_equation(answer):
        return f"({', '.join(named[0].values())})", answer if answer.startswith("(") else f"({answer})"
    if named[1] and gold.startswith("(") and not has_equation(gold):
        return gold, f"({', '.join(value for _, value in sorted(named[1].items(), key=_spelt))})"
    return gold, answer


def _spelt(named: tuple[str, str]) -> str:
    """By the letters of the name: ``r`` before ``\\theta``."""
    return named[0].lstrip("\\")


def equal(gold: Any, answer: Any, rounded: bool) -> bool:
    """Whether two expressions are equal: exactly in structure, mathematically in their parts."""
    if is_constant(gold) and is_constant(answer):
        return same_number(gold, answer, rounded=rounded)
    same = partial(equal, rounded=rounded)
    if is_region(gold) or is_region(answer):
        gold, answer = region(gold), region(answer)
    if isinstance(gold, Eq) != isinstance(answer, Eq):
        gold, answer = _members(gold), _members(answer)
    if isinstance(gold, Eq) and isinstance(answer, Eq):
        return same_equation(gold, answer, same)
    related = isinstance(gold, Relational | sympy.And), isinstance(answer, Relational | sympy.And)
    if all(related):
        return same_relation(gold, answer, same)
    if any(related):
        return False
    if isinstance(gold, sympy.MatrixBase) and isinstance(answer, sympy.MatrixBase):
        return gold.shape == answer.shape and _all_equal(gold.flat(), answer.flat(), rounded)
    if isinstance(gold, sympy.Interval) and isinstance(answer, sympy.Interval):
        open_ends = (gold.left_open, gold.right_open) == (answer.left_open, answer.right_open)
        return open_ends and same(gold.start, answer.start) and same(gold.end, answer.end)
    right, given = _as_tuple(gold), _as_tuple(answer)
    if right is not None and given is not None:
        in_order = not isinstance(gold, FiniteSet)
        return _all_equal(right, given, rounded) if in_order else _same_elements(right, given, rounded)
    if right is not None and isinstance(answer, sympy.Expr):
        return len(right) == 1 and same(right[0], answer)
    if given is not None and isinstance(gold, sympy.Expr):
        return len(given) == 1 and same(gold, given[0])
    return _algebraically_equal(gold, answer, rounded)


def _members(value: Any) -> Any:
    r"""The set of ``x \in \{1,2\}``; else the value as it is."""
    named = isinstance(value, Eq) and isinstance(value.lhs, sympy.Symbol)
    return value.rhs if named and not isinstance(value.rhs, sympy.Expr) else value


def _as_tuple(value: Any) -> Sequence[Any] | None:
    """Elements as they were written; ``(1, 2)`` is read as an open interval and may be a point."""
    if isinstance(value, sympy.Tuple):
        return value.args
    if isinstance(value, sympy.Interval) and value.left_open and value.right_open:
        return value.start, value.end
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
    """math-verify's verdict, where two expressions agree at two points.

    The points come first since they are cheap, and decide most wrong answers. They also stop what it calls equal only
    because it compares with an absolute precision of 15 digits, such as ``x/2^{99}`` and ``x/2^{98}``.
    """
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return math_verify(gold, answer, timeout_seconds=None, raise_on_error=True)
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for top, bottom in _PROBES:
        point = [(symbol, sympy.Rational(top + 2 * i, bottom + i)) for i, symbol in enumerate(symbols)]
        values = gold.subs(point), answer.subs(point)
        if all(map(is_constant, values)) and not same_number(*values, rounded=rounded):
            return False
    same = sympy_symbolic_eq(gold, answer) or (
        not {gold, answer} & set(symbols) and math_verify(gold, answer, timeout_seconds=None, raise_on_error=True)
    )
    return same or _equal_where_real(gold, answer, symbols)


def _equal_where_real(gold: Any, answer: Any, symbols: Sequence[Any]) -> bool:
    """Whether two expressions with roots are one for positive symbols, and differ nowhere where both are real.

    ``\\frac{1}{\\sqrt{n}}`` and ``\\sqrt{1/n}`` differ only where neither is real; ``\\sqrt{x^2}`` and ``x`` everywhere
    below 0.
    """
    if not symbols or not all(any(not p.exp.is_integer for p in v.atoms(sympy.Pow)) for v in (gold, answer)):
        return False
    for signs in itertools.product((1, -1), repeat=min(len(symbols), 4)):
        point = [
            (s, sign * sympy.Rational(7 + 2 * i, 11)) for i, (s, sign) in enumerate(zip(symbols, signs, strict=False))
        ]
        values = [sympy.N(value.subs(point), 30) for value in (gold, answer)]
        if all(v.is_real for v in values) and abs(values[0] - values[1]) > 1e-20:
            return False
    positive = {symbol: sympy.Symbol(f"{symbol}_positive", positive=True) for symbol in symbols}
    return sympy.simplify((gold - answer).subs(positive).doit()) == 0
