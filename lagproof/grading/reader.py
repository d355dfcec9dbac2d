"""Cleaned LaTeX to an expression that has not been worked out. Imported only in the processes of the pool."""

from __future__ import annotations

import importlib
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

import sympy
from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from latex2sympy2_extended.math_normalization import NormalizationConfig, normalize_latex
from latex2sympy2_extended.sets import FiniteSet
from math_verify.grader import should_treat_as_complex
from sympy.parsing import sympy_parser

from lagproof.grading.clean import has_adjacent_numbers, mixed_numbers
from lagproof.grading.units import FUNCTION

_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none", equations=False
)


_FACTOR = r" ?(?=[A-Za-z(]|\\(?!cdot|times|div|%|le|ge|pm|mp|ne|in|cup|cap|\}))"
_SLASH = re.compile(rf"(?<![\d.^/!)}}])(\d++)/(\d+){_FACTOR}")
_BRACKET_SLASH = re.compile(rf"([)}}]) ?/ ?(\d+){_FACTOR}")
_PRIMES = re.compile(r"([A-Za-z])('+|\^\{?\\prime\}?)")
_FACTORIAL_POWER = re.compile(r"(?<!\d)(\d++!) ?\^")
_DEGREES = re.compile(r"(?<![\d.])(\d++(?:\.\d++)?+) ?\^ ?(?:\{ ?\\circ ?\}|\\circ(?![A-Za-z]))")


class UnreadableError(Exception):
    """A text that is no mathematics, or mathematics beyond the limits."""


def forbid_code() -> None:
    """Make sympy's reader of Python expressions, which evaluates them, unusable in this process.

    Some of sympy's own modules read their constants with it while they are imported; ``simplify`` needs them.
    """
    importlib.import_module("sympy.physics.units")

    def refuse(*_: Any, **__: Any) -> Any:
        raise UnreadableError("text is never evaluated as code")

    sympy_parser.eval_expr = refuse


def is_constant(value: Any) -> bool:
    """Whether it is an expression without a symbol."""
    return isinstance(value, sympy.Expr) and not value.free_symbols


def is_complex(text: str) -> bool:
    """Whether symbols beside this stand for complex numbers, since ``i`` or the like is in it."""
    return should_treat_as_complex(text)


@lru_cache(maxsize=4096)
def read(text: str, real: bool = True) -> Any:
    """A cleaned answer as a sympy expression or matrix.

    Args:
        text: what was cleaned.
        real: whether symbols stand for real numbers; the same for all that is compared, or they are not the same.

    Raises:
        UnreadableError: it is no mathematics.
    """
    text = _PRIMES.sub(_primed, text)
    text = _FACTORIAL_POWER.sub(r"(\1)^", _radians(_slashes(mixed_numbers(text))))
    if has_adjacent_numbers(text) or "!!" in text:
        raise UnreadableError(text)
    latex = normalize_latex(text, _NORMALIZATION)
    value = _parse(latex, real, PredictionMode.SLL)
    if value is None:
        value = _parse(latex, real, PredictionMode.LL)
    if not isinstance(value, sympy.Basic | sympy.MatrixBase):
        raise UnreadableError(text)
    return _real_roots(value) if real else value


def _primed(match: re.Match[str]) -> str:
    """``f'`` as a symbol of its own."""
    return f"{match[1]}_{{{'q' * max(1, match[2].count(chr(39)))}}}"


def _slashes(text: str) -> str:
    """``3/4x`` as ``\\frac{3}{4}x``: from left to right, and what is meant by most who write it."""
    return _BRACKET_SLASH.sub(r"\1\\cdot\\frac{1}{\2}", _SLASH.sub(r"\\frac{\1}{\2}", text))


def _radians(text: str) -> str:
    """Degrees in the argument of a function as what they are; anywhere else they are a unit."""
    return text if FUNCTION.search(text) is None else _DEGREES.sub(r"(\1\\cdot\\frac{\\pi}{180})", text)


def _real_roots(value: Any) -> Any:
    """Odd roots of negative numbers as the real ones, as school has them."""
    if isinstance(value, sympy.core.relational.Relational):
        return value.func(*map(_real_roots, value.args), evaluate=False)
    if isinstance(value, FiniteSet):
        return FiniteSet(*map(_real_roots, vars(value)["_unsorted_args"]))
    if isinstance(value, sympy.Expr):
        return value.replace(_is_odd_root, _real_root)
    return value


def _is_odd_root(value: Any) -> bool:
    if not (isinstance(value, sympy.Pow) and isinstance(value.base, sympy.Rational) and value.base < 0):
        return False
    small = value.exp.count_ops() < 4 and all(power.exp == -1 for power in value.exp.atoms(sympy.Pow))
    exponent = value.exp.doit() if small else value.exp
    return isinstance(exponent, sympy.Rational) and exponent.q % 2 == 1 and exponent.q > 1


def _real_root(root: Any) -> Any:
    sign = -1 if root.exp.doit().p % 2 else 1
    return sign * sympy.Pow(-root.base, root.exp, evaluate=False)


def _parse(latex: str, real: bool, mode: Any) -> Any:
    """The expression, ``None`` where there is none.

    Prediction by a single context (SLL) is ten times as fast as by the full one (LL) and agrees with it wherever it
    succeeds; where it fails the text may still be right.
    """
    try:
        return _Reader(mode, real).parse(latex)
    except MemoryError:
        raise
    except Exception:  # the reader raises bare exceptions at whatever it does not know
        return None


def _is_i(value: Any) -> bool:
    return isinstance(value, sympy.Symbol) and value.name == "i"


class _Reader(_Latex2Sympy):
    """math-verify's reader of LaTeX, except where it is wrong.

    Juxtaposition is a product: it reads ``2(3)`` and ``2 3`` as 5, and mixed numbers have been written out before. A
    decimal is the exact fraction that it denotes, a lone ``i`` is the imaginary unit, ``R`` is not ``r``, gamma is a
    letter, and a binomial is not worked out while reading.
    """

    def __init__(self, mode: Any, real: bool) -> None:
        super().__init__(is_real=real, config=ConversionConfig(lowercase_symbols=False))
        self._mode = mode

    def create_parser(self, latex_str: Any) -> Any:
        parser = super().create_parser(latex_str)
        parser._interp.predictionMode = self._mode
        return parser

    def convert_postfix_list(self, arr: Any, i: int = 0) -> Any:
        factor = self.convert_postfix(arr[i])
        if i == len(arr) - 1 or not isinstance(factor, sympy.Expr | sympy.MatrixBase):
            return super().convert_postfix_list(arr, i)
        rest = self.convert_postfix_list(arr, i + 1)
        matrices = isinstance(factor, sympy.MatrixBase) or isinstance(rest, sympy.MatrixBase)
        return self.mat_mul_flat(factor, rest) if matrices else self.mul_flat(factor, rest)

    def parse_number(self, text: Any) -> Any:
        return sympy.Rational(*Fraction(text.replace(",", "")).as_integer_ratio())

    def convert_atom_expr(self, atom_expr: Any) -> Any:
        atom = super().convert_atom_expr(atom_expr)
        if isinstance(atom, sympy.Pow) and _is_i(atom.base):
            return sympy.Pow(sympy.I, atom.exp, evaluate=False)
        return sympy.I if _is_i(atom) else atom

    def convert_atom(self, atom: Any) -> Any:
        value = super().convert_atom(atom)
        return sympy.Symbol("gamma", real=self.is_real) if value is sympy.EulerGamma else value

    def convert_binom(self, binom: Any) -> Any:
        return sympy.binomial(self.convert_expr(binom.upper), self.convert_expr(binom.lower), evaluate=False)
