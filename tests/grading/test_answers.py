"""Finding, cleaning and reading answers, without any algebra."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagproof.grading import numbers
from lagproof.grading.clean import clean, depth, has_adjacent_numbers, mixed_numbers, split_top
from lagproof.grading.extract import MAX_CHARS, Form, extract
from lagproof.grading.judge import Question, Verdict, first_look
from lagproof.grading.numbers import Number
from lagproof.grading.units import differ, read_unit, split_unit
from lagproof.grading.votes import answer_key


@pytest.mark.parametrize(
    ("response", "form", "answer"),
    [
        (r"a \boxed{1} b \boxed{2} c", Form.BOXED, "2"),
        (r"\boxed{\frac{1}{2}}", Form.BOXED, r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", Form.BOXED, r"\{1,2\}"),
        (r"\boxed{ }", Form.BOXED, None),
        (r"\boxed{1} \boxed{2", Form.BOXED, None),
        (r"\boxed", Form.BOXED, None),
        (r"\boxed x", Form.BOXED, "x"),
        (r"\boxedfoo{5}", Form.BOXED, None),
        (r"\boxed{" + "1" * (MAX_CHARS + 1) + "}", Form.BOXED, None),
        ("5", Form.BOXED, None),
        (" 5 ", Form.WHOLE, "5"),
        (r"it is \boxed{5}", Form.WHOLE, "5"),
        ("", Form.WHOLE, None),
        ("1" * (MAX_CHARS + 1), Form.WHOLE, None),
        ("#### 5\n", Form.MARKED, "5"),
        ("####", Form.MARKED, None),
        ("The answer is 5. The answer is\n7", Form.MARKED, None),
        ("Answer: 3.5 meters. Done", Form.MARKED, "3.5 meters"),
        ("my answers issue 3", Form.MARKED, None),
    ],
)
def test_extraction(response: str, form: Form, answer: str | None) -> None:
    assert extract(response, form) == answer


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (r"$\dfrac{3}{4}$", r"\frac{3}{4}"),
        (r"\frac34", r"\frac{3}{4}"),
        (r"\frac1{34}", r"\frac{1}{34}"),
        (r"\frac{1}2", r"\frac{1}{2}"),
        (r"\left( 1, 2 \right)", "( 1, 2 )"),
        (r"\mathbf{x+1}", "x+1"),
        (r"\text{Monday}", r"\text{Monday}"),
        (r"1{,}234{,}567", "1234567"),
        ("1,234", "1234"),
        ("(1,234)", "(1,234)"),  # a point
        ("1,2", "1,2"),
        ("12 34", "12 34"),
        ("-7.", "-7"),
        ("5!=120", "5!=120"),
        ("x != 3", r"x \ne 3"),
        (r"\begin{pmatrix}1\\ 2\end{pmatrix}", r"\begin{pmatrix}1\\ 2\end{pmatrix}"),
        ("2**3", "2^3"),
        (r"\sqrt(x(y+1))", r"\sqrt{x(y+1)}"),
        ("√12", r"\sqrt{12}"),
        ("2e3x", "2e3x"),
        ("2.5e-3", r"2.5\cdot 10^{-3}"),
        (r"0.1\overline{6}", r"\frac{15}{90}"),
        ("1 or 2", "1, 2"),
        ("land", "land"),
    ],
)
def test_cleaning(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.mark.parametrize("text", ["", " ", "$", "\\", "^", "\\text{", "**", "\\sqrt(", "\\frac", "\u2070", "½"])
def test_cleaning_fragments_never_raises(text: str) -> None:
    clean(text)


@given(st.text(alphabet="0123456789+-*/^_.,;:=<>!%$ \\{}()[]abeixtfrcsqdo\n½√²−", max_size=60))
def test_first_look_never_raises_and_never_rewards_a_missing_answer(text: str) -> None:
    assert first_look(text, "") in (Verdict.UNPARSED, Verdict.BAD_GOLD)
    look = first_look("7", text)
    assert isinstance(look, Question) or look in (Verdict.CORRECT, Verdict.WRONG, Verdict.UNPARSED)
    assert first_look("", text) is Verdict.BAD_GOLD


BRACKETS = ["(", " ", "1 ", ",", r"\text{", "*", "**", "9", "1,", "1 111 ", "\\", "^(", "sqrt(", "and ", "a.", "x\\ "]


@pytest.mark.parametrize("piece", BRACKETS)
def test_cleaning_is_fast_on_whatever_fits(piece: str) -> None:
    text = (piece * MAX_CHARS)[:MAX_CHARS]
    start = time.process_time()
    clean(text)
    split_unit(text, plain_number=True)
    extract(text * 20, Form.MARKED)
    assert time.process_time() - start < 2.0  # catastrophic backtracking takes minutes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", Fraction(42)),
        ("007", Fraction(7)),
        ("-3", Fraction(-3)),
        ("+ 3", Fraction(3)),
        ("--3", Fraction(3)),
        ("3/4", Fraction(3, 4)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"2\frac{1}{2}", Fraction(5, 2)),
        (r"-2\frac{1}{2}", Fraction(-5, 2)),
        ("1 1/4", Fraction(5, 4)),
        ("10^{3}", Fraction(1000)),
        (r"6\cdot 10^{-2}", Fraction(3, 50)),
    ],
)
def test_plain_numbers(text: str, value: Fraction) -> None:
    assert numbers.read(text) == Number(value)


def test_decimals_and_percentages_keep_how_they_were_written() -> None:
    assert numbers.read("0.50") == Number(Fraction(1, 2), decimal=True)
    assert numbers.read("0,5") == Number(Fraction(1, 2), decimal=True)
    assert numbers.read(r"50\%") == Number(Fraction(50), percent=True)


@pytest.mark.parametrize("text", ["", "x", "1/0", r"\frac{1}{0}", "1 2", "1.2.3", "1,2", "2x", "--", "9" * 1001, "∞"])
def test_everything_else_is_no_plain_number(text: str) -> None:
    assert numbers.read(text) is None


@settings(max_examples=200)
@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6), st.integers(1, 10**6))
def test_exact_numbers_are_equal_iff_their_values_are(a: int, b: int, c: int) -> None:
    left, right = numbers.read(f"{a}/{b}".replace("-", "-")), numbers.read(rf"\frac{{{a}}}{{{c}}}")
    assert left is not None
    assert right is not None
    assert numbers.equal(left, right) == (a * c == a * b)


@pytest.mark.parametrize(
    ("gold", "answer", "same"),
    [
        ("1/3", "0.333333", True),  # half a unit in the sixth decimal
        ("1/3", "0.33333", False),
        ("2/3", "0.666667", True),
        ("2/3", "0.666666", False),
        ("0.0000001", "0.0000002", False),  # six decimals alone would call both 0
        ("0", "0.0000001", False),
        ("3.14", "3.1400001", True),
        ("5", "5.0", True),
        ("1000000", "1000000.4", False),
        (r"50\%", "50", True),
        (r"50\%", "0.5", True),
        ("0.5", r"50\%", True),
        ("0.5", "50", False),
        (r"50\%", r"0.5\%", False),
    ],
)
def test_rounding_and_percent(gold: str, answer: str, same: bool) -> None:
    left, right = numbers.read(gold), numbers.read(answer)
    assert left is not None
    assert right is not None
    assert numbers.equal(left, right) is same


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        (r"10\text{ cm}", "10", "cm"),
        ("10 cm", "10", "cm"),
        (r"10 \text{ cm}^2", "10", "cm^2"),
        (r"10\text{ square centimeters}", "10", "cm^2"),
        ("5 apples", "5", "apple"),
        (r"45^\circ", "45", "degree"),
        (r"45^{\circ}", "45", "degree"),
        (r"20^\circ C", "20", "degree"),  # plain degrees are of any scale
        (r"\frac{1}{2}\text{ hour}", r"\frac{1}{2}", "h"),
        ("5x", "5x", None),
        ("10 m", "10", "m"),
    ],
)
def test_units(text: str, value: str, unit: str | None) -> None:
    found, said = split_unit(text, plain_number=True)
    assert found == value
    assert not differ(said, read_unit(unit)) if unit in PHYSICAL else str(said) == (unit or "None")
    assert all(differ(said, read_unit(other)) for other in PHYSICAL if said is not None and other != unit)


PHYSICAL = ["cm", "cm^2", "h", "m", "degree"]


def test_a_lone_letter_is_a_variable_unless_the_gold_is_a_number() -> None:
    assert split_unit("10 m", plain_number=False) == ("10 m", None)


@pytest.mark.parametrize(
    ("words", "unit"),
    [
        ("sq cm", "cm^2"),
        ("cubic feet", "ft^3"),
        ("hours", "h"),
        ("inches", "in"),
        ("mph", "mi/h"),
        ("miles per hour", "mi/h"),
        ("apples", None),
    ],
)
def test_unit_names(words: str, unit: str | None) -> None:
    read = read_unit(words)
    assert (read is None) == (unit is None)
    assert unit is None or not differ(read, read_unit(unit))
    assert not read or differ(read, read_unit("kg"))


def test_brackets() -> None:
    assert depth("((a)[b]{c{d}})") == 3
    assert split_top("(1,2),[3,4]", ",") == ["(1,2)", "[3,4]"]
    assert split_top(r"x \le 2", "=") == [r"x \le 2"]
    assert split_top("a<=b=c", "=") == ["a<=b", "c"]
    assert mixed_numbers(r"2\frac{1}{2}") == r"(2+\frac{1}{2})"
    assert mixed_numbers(r"x^2\frac{1}{2}") == r"x^2\frac{1}{2}"
    assert mixed_numbers(r"(1,2\frac{1}{2})") == r"(1,(2+\frac{1}{2}))"
    assert has_adjacent_numbers("2 3")
    assert not has_adjacent_numbers("x_1 2")


def test_what_is_nested_too_deep_is_not_asked() -> None:
    assert first_look("2x", "(" * 12 + "x+x" + ")" * 12) == Question("2x", "(" * 12 + "x+x" + ")" * 12)
    assert first_look("2x", "(" * 13 + "x+x" + ")" * 13) is Verdict.UNPARSED
    assert first_look("(" * 13 + "x+x" + ")" * 13, "2x") is Verdict.BAD_GOLD


@pytest.mark.parametrize("text", ["", "  ", "(" * 100, "1" * 3000])
def test_what_says_nothing_has_no_vote(text: str) -> None:
    assert answer_key(text, "5") is None
