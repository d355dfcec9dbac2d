"""Every pattern that cleaning uses, with an answer that is read in another way without it."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from lagproof.grading import clean as module

EXAMPLES = {  # pattern: (answer, what becomes of it)
    "_SUPERSCRIPT_RUN": ("x²³", "x^{23}"),
    "_EXPLICIT_SEPARATOR": (r"12{,}345", "12345"),
    "_SPACED_NUMBER": ("12 345", "12345"),
    "_COMMA_NUMBER": ("12,345", "12345"),
    "_SPACE_COMMAND": (r"1\quad m", "1 m"),
    "_DROPPED": (r"\left(1,2\right)", "(1,2)"),
    "_COMMAND": (r"x=\varnothing", r"x=\emptyset"),
    "_COLOUR": (r"\textcolor{red}{5}", "5"),
    "_EMPTY_SET": (r"\{ \}", r"\emptyset"),
    "_BLACKBOARD": (r"\mathbb R", r"\mathbb{R}"),
    "_CHOOSE": (r"{n \choose 2}", r"\binom{n}{2}"),
    "_TIMES_LETTER": ("3 x 10^4", r"3\times 10^4"),
    "_COMMON_LOG": (r"\lg 2", r"\log_{10} 2"),
    "_NATURAL_LOG": (r"\log_e 2", r"\ln 2"),
    "_BARE_EXPONENT": ("x^-2", "x^{-2}"),
    "_FRACTION_NAME": (r"\tfrac{1}{2}", r"\frac{1}{2}"),
    "_WITH_ARGUMENTS": (r"\frac12", r"\frac{1}{2}"),
    "_ROOT_SIGN": ("√12", r"\sqrt{12}"),
    "_BARE_ROOT": ("sqrt12", r"\sqrt{12}"),
    "_NOT_EQUAL": ("x != 3", r"x \ne 3"),
    "_BOLD": ("**5**", "5"),
    "_BRACED_COMMAS": ("2^{1,000}", "2^{1000}"),
    "_LEAD_IN": ("The answer is 5", "5"),
    "_TURNED": (r"\text{at least: }5", r"\text{at least: }5"),
    "_AND_OR": ("1 and 2", "1, 2"),
    "_RELATION": ("x>1 or x<0", r"x>1 \lor x<0"),
    "_MODULO": (r"70 (\text{mod } 100)", r"70 \pmod{100}"),
    "_MONEY": (r"US\$500", "500"),
    "_ORDINAL": ("June 20th", "June 20"),
    "_AND_SO_ON": (r"0.1666\ldots", r"\frac{15}{90}"),
    "_SEMICOLON": ("[0;1]", "[0,1]"),
    "_DEGREE_WORD": (r"30\text{ °C}", r"30^\circC"),
    "_CONSTANT_WORD": (r"2\mathrm{e}", "2 e"),
    "_NUMBER_WRAPPER": (r"x=\mathbf{12}", "x=12"),
    "_PERCENT_WORD": ("5 percent", r"5\%"),
    "_SCIENTIFIC": ("1.5e-3", r"1.5\cdot 10^{-3}"),
    "_BARE_PI": ("2pi", r"2\pi"),
    "_BARE_FUNCTION": ("sqrt{2}", r"\sqrt{2}"),
    "_REPEATING": (r"0.\overline{3}", r"\frac{3}{9}"),
}
NEVER = re.compile(r"(?!)()()()()()()")


def patterns() -> set[str]:
    return {name for name, value in vars(module).items() if isinstance(value, re.Pattern)}


def test_every_pattern_has_an_example():
    assert patterns() - EXAMPLES.keys() == {"_MIXED", "_ADJACENT_NUMBERS"}  # of functions of their own, below
    assert EXAMPLES.keys() <= patterns()


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_pattern_changes_how_its_example_is_read(name: str, monkeypatch: pytest.MonkeyPatch):
    answer, cleaned = EXAMPLES[name]
    assert module.clean(answer) == cleaned
    pattern = getattr(module, name)
    monkeypatch.setattr(module, name, NEVER)
    monkeypatch.setattr(module, "_STEPS", tuple(without(step, pattern) for step in module._STEPS))
    assert module.clean(answer) != cleaned


def without(step: Any, pattern: re.Pattern[str]) -> Any:
    """A step of cleaning that never finds the pattern."""
    if isinstance(step, partial) and step.args[0] is pattern:
        return partial(step.func, NEVER, *step.args[1:])
    return step


@pytest.mark.parametrize("answer", [r"2\frac{1}{2}", "2 1/2"])
def test_mixed_numbers(answer: str, monkeypatch: pytest.MonkeyPatch):
    assert module.mixed_numbers(answer) == r"(2+\frac{1}{2})"
    monkeypatch.setattr(module, "_MIXED", NEVER)
    assert module.mixed_numbers(answer) == answer


def test_adjacent_numbers(monkeypatch: pytest.MonkeyPatch):
    assert module.has_adjacent_numbers("12 34") and not module.has_adjacent_numbers("12x 34")
    monkeypatch.setattr(module, "_ADJACENT_NUMBERS", NEVER)
    assert not module.has_adjacent_numbers("12 34")


@pytest.mark.parametrize("command", module._SAME)
def test_commands_that_mean_the_same(command: str):
    assert module.clean(f"x{command} y") == f"x{module._SAME[command]} y"


@pytest.mark.parametrize("character", [c for c in module._CHARACTERS if module._CHARACTERS[c]])
def test_characters(character: str):
    assert module.clean(f"1{character}2") == module.clean(f"1{module._CHARACTERS[character]}2")
    assert character not in module.clean(f"1{character}2")
