"""Grading as a run sees it: the faults of a math verifier (F58 to F65), bad input, and answers that bite."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from lagproof.errors import ConfigError
from lagproof.grading.extract import Form
from lagproof.grading.grader import Grade, Grader
from lagproof.grading.pool import Limits


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(limits=Limits(time_s=60, workers=1)) as grader:
        yield grader


def box(text: str) -> str:
    return f"So the answer is $\\boxed{{{text}}}$."


RIGHT = [
    # F60 mixed numbers
    ("5/2", box(r"2\frac{1}{2}")),
    ("-5/3", box(r"-1\frac{2}{3}")),
    ("5/4", box("1 1/4")),
    # F61 where the box is
    ("42", r"\fbox{42}"),
    ("42", r"We tried 17. \fbox{42} is it, out of 99."),
    ("5", r"\boxed {5}"),
    ("5", r"\boxed 5"),
    ("1/2", r"\boxed{\frac{1}{2}}"),
    ("2", r"First \boxed{1}, no: \boxed{2}"),
    # F64 a box is stripped once, on both sides
    ("5", r"Answer: \boxed{5}"),
    (r"\boxed{5}", r"Answer: \boxed{5}"),
    ("5", r"\boxed{\boxed{5}}"),
    # F63 what looks alike in fifteen digits
    ("1/2^{98}", box("2^{-98}")),
    ("1/2006!", box(r"\frac{1}{2006!}")),
    ("1/3", box("0.333333")),
    ("7", box("x=7")),
    ("7", box("x=3+4=7")),
    ("7", box("7=x")),
    ("x=7", box("7")),
    ("10 cm", box(r"10 \text{ cm}")),
    ("10 cm", box("10")),
    ("10", box(r"10 \text{ m}")),
    (r"10\text{ cm}", box("10 centimeters")),
    ("101_2", box("101_2")),
    ("101_2", box(r"101_{\text{two}}")),
    ("101_2", box("101")),
    ("1331,1728", box("1728, 1331")),
    ("1-1/e", box(r"1-\frac{1}{\mathrm{e}}")),
    # F65 signs and decoration
    ("-5", box("-5")),
    ("-5", box("\u22125")),
    ("73", box("**73**")),
    ("13", box(r"\text{13}")),
    ("7", box("7.")),
    ("7", box(r"\text{The answer is } 7")),
    (r"\frac{\pi}{2}", box("pi/2")),
    ("600000", box("6e5")),
    (r"4\sqrt{2}", box(r"4\sqrt(2)")),
    (r"4\sqrt{2}", box("4√2")),
    ("14 - i", box("14.0 - 1.0i")),
    ("50", box(r"50\%")),
    ("0.5", box(r"50\%")),
    ("45", box(r"45^\circ")),
    ("5", box(r"\$5")),
    ("5", box(r"5 \text{ cm}^2")),
    # an interval is what an inequality says, either way around
    ("1<x<3", box("(1,3)")),
    ("(1,3)", box("1<x<3")),
    ("[0,1)", box(r"0\le x<1")),
    (r"0\le x<1", box("[0,1)")),
    (r"x\in[0,1)", box(r"1>x\ge 0")),
    (r"(-\infty,2]\cup[3,\infty)", box(r"x\le 2 \text{ or } x\ge 3")),
    (r"(-\infty,0)\cup(0,\infty)", box(r"x\ne 0")),
    # bare LaTeX on the gold side is read whole
    (r"2\sqrt{3}", box(r"\sqrt{12}")),
    ("3^{20}", box("3486784401")),
    ("(1,3)", box("(1, 3)")),
    (r"\frac{\pi}{4}", box(r"\pi/4")),
    # separators
    ("25600", box(r"25\,600")),
    (r"25\,600", box("25600")),
    ("1000", box(r"1\,000")),
    ("12345", box("12 345")),
    ("32348", box(r"\$32,\!348")),
    # unicode minus, digits, fractions, powers
    ("42", box("\u0664\u0662")),
    ("42", box("\uff14\uff12")),
    ("5/2", box("2½")),
    ("4", box("2²")),
    # products, lists, matrices, sets, words
    ("6", box("2(3)")),
    ("6", box("(2)(3)")),
    ("11,13", box(r"11\text{ and }13")),
    ("3,-3", box(r"x = 3 \text{ or } x = -3")),
    ("-3,3", box(r"\pm 3")),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", box(r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}")),
    ("(x+1)^2", box("x^2+2x+1")),
    (r"(-\infty,2)\cup(3,\infty)", box(r"(-\infty, 2) \cup (3, \infty)")),
    (r"\frac{1}{1+i}", box(r"\frac{1-i}{2}")),
    (r"\frac{7}{9}", box(r"0.\overline{7}")),
    ("0", box(r"\sqrt{2}\sqrt{3}-\sqrt{6}")),
    (r"\text{Navin}", box("Navin")),
    (r"\text{(C)}", box("C")),
    ("10^{10^{10}}", box("10^{10^{10}}")),
    # what stands in front of a value: what the question can have asked for
    ("113", box("m+n=113")),
    ("3", box("f(2)=3")),
    ("1/4", box("P(A)=1/4")),
    ("60", box(r"\angle ABC=60^\circ")),
    ("(1,2)", box("y=2, x=1")),
    ("(a,b)=(3,4)", box("(3,4)")),
    ("y=2x+1", box("2x-y+1=0")),
    ("x=2", box(r"x\in\{2\}")),
    ("1,2", box(r"x\in\{1,2\}")),
    # degrees, in functions and behind values
    (r"\frac12", box(r"\sin 30^\circ")),
    (r"\frac{1}{\sin 10^\circ}", box(r"\frac{1}{\cos 80^{\circ}}")),
    ("45", box(r"45\degree")),
    ("24", box("24℃")),
    # numbers that are near and the same
    ("2^{2^{10}}", box("2^{1024}")),
    (r"\binom{4040}{2020}", box(r"\frac{4040!}{2020!^2}")),
    ("-2", box(r"\sqrt[3]{-8}")),
    # words behind a number, and multiples
    ("10000000", box(r"10\text{ million}")),
    ("12", box("1 dozen")),
    ("5", box("5 men")),
    ("5 apples", box("5")),
    (r"\text{5 cm}", box("5")),
    (r"24\text{ mph}", box(r"24\text{ miles per hour}")),
    ("24", box("24cm")),
    ("24", box(r"24\text{ m²}")),
    (r"\text{3:15 p.m.}", box(r"3:15\text{ p.m.}")),
    # ratios
    ("1:2:3", box("2:4:6")),
    ("3:4", box(r"\frac34")),
    # a slash goes from left to right
    (r"\frac{3}{4}x", box("3/4x")),
    (r"\frac43\pi r^3", box(r"4/3 \pi r^3")),
    (r"\frac12+\frac{\sqrt3}{2}i", box(r"1/2+\sqrt3/2 i")),
    # symbols
    ("x", box("2x-x")),
    ("(a+b)i", box("ai+bi")),
    ("z^2+1", box("(z+i)(z-i)")),
    (r"\phi^2", box(r"\varphi^2")),
    # lists, sets, inequalities
    ("101, 121", box("101,121")),
    (r"\frac{3\pm\sqrt5}{2}", box(r"\frac{3-\sqrt5}{2}, \frac{3+\sqrt5}{2}")),
    (r"1\pm\sqrt2", box(r"1\pm\sqrt{2}")),
    (r"\emptyset", box(r"\varnothing")),
    (r"\mathbb{R}", box(r"(-\infty,\infty)")),
    ("-4<x<1", box("1>x>-4")),
    ("A<B<C", box("C>B>A")),
    (r"a\ne b", box(r"b\neq a")),
    # decoration
    ("42", box(r"\underline{42}")),
    ("42", box(r"\textcolor{blue}{42}")),
    ("42", box("\u200b42")),
    ("42", box("= 42")),
    ("5", box("€5")),
    ("120", box(r"{10 \choose 3}")),
    (r"\frac{\pi}{2}", box(r"\frac\pi2")),
    ("1/2", box("2^-1")),
    ("1200", box("1.2 x 10^3")),
    (r"\ln 2", box(r"\log_e 2")),
    ("1/3", box("0.(3)")),
    ("1", box(r"e^{i\pi/3}+e^{-i\pi/3}")),
    ("2", box(r"2+i(\sqrt2+\sqrt3-\sqrt{5+2\sqrt6})")),
    (r"\sin 1", box(r"\frac{e^{i}-e^{-i}}{2i}")),
    (r"\lg 100", box("2")),
    ("2", box(r"2\pmod{5}")),
    ("C", box(r"\textbf{(C)}\ 5")),
    ("C", box("(C) 5")),
    (r"\textbf{(C)}\ 5", box("C")),
    (r"\textbf{(C)}\ 5", box("5")),
    (r"\text{(A)}", box("A. 12")),
    ("5", box("five")),
    (r"\{\}", box("∅")),
    # what an answer may put in front of its value
    ("5", box("|z|=5")),
    ("4", box("f(-2)+f(2)=4")),
    (r"\frac13", box(r"P(X=3)=\frac13")),
    ("371", box(r"N \bmod 1000=371")),
    ("55", box("100a+b=55")),
    (r"(3,\frac\pi2)", box(r"r=3,\theta=\frac\pi2")),
    ("1:2", box("AB:BC=1:2")),
    ("16:25", box(r"\frac{16}{25}")),
    ("60", box("5 dozens")),
    ("18", box("18 more eggs")),
    ("18", box("18 years older than Bob")),
    ("2", box("2 times as many")),
    ("-i", box("i^3")),
    ("4", box("(-8)^{2/3}")),
    (r"x=-\sqrt[3]{2}", box(r"x=\sqrt[3]{-2}")),
    (r"\{-2,-1,1,2\}", box(r"\{\pm1,\pm2\}")),
    (r"[2,3)\cup(3,\infty)", box(r"x\ge2, x\ne3")),
    (r"\frac{10,000}{3}", box(r"\frac{10000}{3}")),
    (r"\text{A, C, D}", box("A,C,D")),
    ("x^2+y^2", box("x**2 + y**2")),
    ("five", box("5")),
    ("5", box("(C) 5")),
    ("equilateral triangle", box(r"\text{Equilateral triangle}")),
]

WRONG = [
    ("2", r"The final answer is 2 2/3", "unparsed"),
    ("42", "The answer is not 42.", "unparsed"),  # F62
    ("42", r"So 42 is my guess, \boxed{}", "unparsed"),
    ("42", "Maybe 41? The number 42 came up. I give up.", "unparsed"),
    ("42", r"\boxed{42", "unparsed"),
    ("41", r"\boxed{41}, no wait, \boxed{42", "unparsed"),
    ("42", "", "unparsed"),
    ("1/2^{98}", box("1/2^{99}"), "wrong"),  # F63
    ("1/2006!", box("1/2004!"), "wrong"),
    ("1/(3*2^{2006})", box("(2^{2005}+1)/(3*2^{2006})"), "wrong"),
    (r"x+\frac{1}{2^{98}}", box(r"x+\frac{1}{2^{99}}"), "wrong"),
    ("2^{300}", box("2^{300}+1"), "wrong"),  # alike in ninety digits
    ("(3, 1/2^{98})", box("(3, 1/2^{99})"), "wrong"),
    (r"\frac{1}{2^{98}}\sqrt{2}", box(r"\frac{1}{2^{99}}\sqrt{2}"), "wrong"),
    ("7", box("1=2=7"), "wrong"),
    ("7", box("x=5=7"), "wrong"),
    ("x=7", box("x=5=7"), "wrong"),
    ("10 cm", box(r"10 \text{ m}"), "wrong"),
    (r"10\text{ cm}", box(r"10 \text{ cm}^2"), "wrong"),
    ("101_2", box("101_3"), "wrong"),
    ("5", box("101_2"), "wrong"),
    ("1/3", box("0.33"), "wrong"),
    ("1728", box("1331,1728"), "wrong"),
    ("1331,1728", box("1728"), "wrong"),
    ("2021", box(r"\pm 2021"), "wrong"),
    ("n=1,2,3", box("n=2,3,4"), "wrong"),
    ("1+1/e", box("1-1/e"), "wrong"),
    ("1+1/e", box(r"1-\frac{1}{\mathrm{e}}"), "wrong"),
    ("5", box("-5"), "wrong"),  # F65
    ("(1,3)", box("[1,3]"), "wrong"),
    ("(1,3)", box(r"1\le x<3"), "wrong"),
    ("[0,1)", box("0<x<1"), "wrong"),
    (r"(-\infty,2]\cup[3,\infty)", box(r"x\le 2 \text{ or } x\ge 4"), "wrong"),
    ("[1,3)", box(r"1\le 3"), "wrong"),
    ("[1,2]", box(r"x^2+y^2\le 1"), "wrong"),
    ("(1,3)", box("(3,1)"), "wrong"),
    ("5", box("2 3"), "unparsed"),  # two numbers side by side are no sum
    ("5", box("2(3)"), "wrong"),
    ("3m", box("3"), "wrong"),  # m is a variable here
    ("2,2", box("2"), "wrong"),
    (r"\text{Navin}", box("Ann"), "wrong"),
    (r"\text{see figure}", box("4"), "wrong"),  # F59
    ("C", box("D"), "wrong"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", box(r"\begin{pmatrix}1&2\\3&5\end{pmatrix}"), "wrong"),
    (r"\sqrt{2}", box("1.4142"), "wrong"),
    # an equation is not the value on its right
    ("7", box("x^2=7"), "wrong"),
    ("7", box("2x=7"), "wrong"),
    ("-3", box("-x=-3"), "wrong"),
    ("0", box("x^2-1=0"), "wrong"),
    ("x=7", box("2x=7"), "wrong"),
    ("x=7", box("y=7"), "wrong"),
    ("x+y=5", box("5"), "wrong"),
    ("x^2+y^2=1", box("1"), "wrong"),
    ("y^2=8x", box("8x"), "wrong"),
    ("2x+1", box("3y=2x+1"), "wrong"),
    ("(1,2)", box("y=1, x=2"), "wrong"),
    ("m=2,n=3", box("(3,2)"), "wrong"),
    ("(a,b)=(3,4)", box("(b,a)=(3,4)"), "wrong"),
    # letters
    ("R^2-r^2", box("0"), "wrong"),
    (r"\frac{R}{r}", box("1"), "wrong"),
    ("f'(x)", box("f(x)"), "wrong"),
    # degrees are no radians
    (r"\sin 20", box(r"\sin 20^\circ"), "wrong"),
    # a difference that is small beside the numbers
    (r"2^{200}+\sqrt2", box("2^{200}"), "wrong"),
    (r"(2+\sqrt3)^{100}+(2-\sqrt3)^{100}", box(r"(2+\sqrt3)^{100}"), "wrong"),
    ("1-e^{-200}", box("1"), "wrong"),
    ("2", box(r"e^{i\pi/3}+e^{-i\pi/3}"), "wrong"),
    ("1", box(r"2+i(\sqrt2+\sqrt3-\sqrt{5+2\sqrt6})"), "wrong"),  # one part is 0 without showing it
    (r"\sin 2", box(r"\frac{e^{i}-e^{-i}}{2i}"), "wrong"),
    # words that make a number another one
    ("5", box(r"5\text{ million}"), "wrong"),
    ("24 million", box("24 billion"), "wrong"),
    ("42", box(r"42\text{ or more}"), "wrong"),
    ("5", box(r"5\text{ and a half}"), "wrong"),
    ("24", box(r"24\text{ cm or less}"), "wrong"),
    ("5", box(r"5\,xy"), "wrong"),
    ("5", box(r"5\mathrm{x}"), "wrong"),
    (r"24\text{ cm}^2", box(r"24\,\mathrm{cm^3}"), "wrong"),
    (r"3:15\text{ p.m.}", box(r"3:15\text{ a.m.}"), "wrong"),
    (r"24^\circ", box(r"24\text{ radians}"), "wrong"),
    ("10", box(r"\text{minus: }10"), "wrong"),
    # ratios and times of day
    ("1:2:3", box("1:3:2"), "wrong"),
    ("2:3:4", box(r"\frac16"), "wrong"),
    ("4:20", box("8:40"), "wrong"),
    # words and labels are no products
    ("BAC", box("ABC"), "wrong"),
    ("IV", box("VI"), "wrong"),
    ("C", box(r"\textbf{(D)}\ 5"), "wrong"),
    (r"\textbf{(C)}\ 5", box("6"), "wrong"),
    (r"\textbf{(C)}\ 5", box(r"\textbf{(D)}\ 5"), "wrong"),
    ("5", box("six"), "wrong"),
    ("1.5 hours", box("15 hours"), "wrong"),
    (r"\text{(A)}", box("5"), "wrong"),
    ("B", box("(B) or (C)"), "wrong"),
    ("(A), (C)", box("(A)"), "wrong"),
    ("1:2", box("0:0"), "wrong"),
    ("R", box("r"), "wrong"),
    ("R-r", box("r-R"), "wrong"),
    ("10 cm/s", box("10 m/s"), "wrong"),
    ("5", box("5 dozens"), "wrong"),
    ("x=5", box("(x,y)=5"), "wrong"),
    ("x>1", box(r"\frac{x}{0}>1"), "wrong"),
    ("42", box("x(x+1)=42"), "wrong"),
    ("1", box(r"\sin(x)=1"), "wrong"),
    ("5", box("2x+3y+1=5"), "wrong"),
    ("true", box("5"), "wrong"),
    (r"\frac{3}{4x}", box("3/4x"), "wrong"),
    ("15", box("5!!"), "unparsed"),
    (r"x\ne 3", box(r"x\ne 4"), "wrong"),
    ("0,1", box("0<x<1"), "wrong"),
]

BITING = [  # each costs its reward and is counted, within the limits that come before any algebra
    "9^{9^{9}}",
    "(10^{8})!",
    "(" * 3000 + "42" + ")" * 3000,
    "{" * 3000 + "42" + "}" * 3000,
    r"\binom{100000000}{50000000}",
    "(-2)^{9^{9^{9}}}",
    "42" + "0" * 1_000_000,
    '__import__("os").abort()',
]


@pytest.mark.parametrize(("gold", "response"), RIGHT)
def test_right_answers_are_rewarded(grader: Grader, gold: str, response: str) -> None:
    (grade,) = grader.grade([(gold, response)])
    assert (grade.reward, grade.reason) == (1.0, "correct")


@pytest.mark.parametrize(("gold", "response", "reason"), WRONG)
def test_wrong_answers_are_not(grader: Grader, gold: str, response: str, reason: str) -> None:
    (grade,) = grader.grade([(gold, response)])
    assert (grade.reward, grade.reason) == (0.0, reason)


VOTES = [  # right answer; answers that say the same; answers that each say something else
    (
        "5",
        ["5", "5.0", r"\frac{10}{2}", "$5$", r"\text{5}", "x=5", "5 = x", "x = y = 5", r"\text{The area}=5"],
        ["50", "x=5=7"],
    ),
    ("5", ["5 m", r"5\text{ cm}", "5", r"\text{5 apples}"], [r"5\%", "-5"]),
    ("5 cm", ["5 cm", "5", r"x = 5\text{ centimeters}"], ["5 m", r"5\text{ cm}^2"]),
    ("x=7", ["x=7", "7", "7=x"], ["y=7"]),
    ("2x+1", ["2x + 1", "y=2x+1", "f(x) = 2x+1"], ["2x-1", "x+y=2x+1"]),
    ("y=2x+1", ["y=2x+1", "2x+1"], ["x=2y+1"]),
    ("x^2+y^2=1", ["x^2 + y^2 = 1"], ["1"]),
    ("1,2", ["1,2", "2, 1", r"\{2,1\}", r"x=1\text{ or }x=2", "1.0, 2"], ["1", "1,2,2"]),
    ("n=1,2", ["n=1,2", "1,2"], ["m=1,2"]),
    ("(1,2)", ["(1,2)", "(1, 2)"], ["(2,1)", "2,1", "1,2"]),
    ("101_2", ["101_2", "101", r"101_{\text{two}}"], ["101_3", "5"]),
    ("101", ["101_2", "101"], ["11"]),
    (r"\text{Monday}", [r"\text{Monday}", "monday"], ["Tuesday"]),
    ("0.5", ["0.5", "1/2"], [r"50\%", "50"]),
    (r"\pi", [r"\pi"], [r"\pi=3.14", "3.14"]),
]


@pytest.mark.parametrize(("gold", "same", "others"), VOTES)
def test_answers_vote_together_where_grading_cannot_tell_them_apart(
    grader: Grader, gold: str, same: list[str], others: list[str]
) -> None:
    assert len({grader.key(gold, box(text)) for text in same}) == 1
    assert {grade.reason for grade in grader.grade([(gold, box(text)) for text in same])} == {"correct"}
    keys = [grader.key(gold, box(text)) for text in (same[0], *others)]
    assert len({*keys, None}) == len(keys) + 1


@pytest.mark.parametrize("answer", BITING, ids=lambda a: a[:12])
def test_biting_answers_cost_their_reward(grader: Grader, answer: str) -> None:
    bite, plain = grader.grade([("42", box(answer)), ("2x", box("x+x"))])
    assert bite.reward == 0.0
    assert bite.reason in ("unparsed", "wrong")
    assert plain.reason == "correct"


def test_a_megabyte_before_the_box_is_read(grader: Grader) -> None:
    (grade,) = grader.grade([("42", "x{" * 500_000 + box("42"))])
    assert grade.reason == "correct"


@pytest.mark.parametrize("gold", ["", "   ", r"\boxed{}", r"\frac{1}{", "$$"])
def test_a_gold_that_cannot_be_read_is_reported_once_and_never_rewarded(
    gold: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Grader(limits=Limits(workers=1)) as grader:
        grades = grader.grade([(gold, box("4")), (gold, box(gold)), (gold, box("1"))])
    assert all(not grade.reward > 0 for grade in grades)
    assert "bad_gold" in {grade.reason for grade in grades}
    assert all(math.isnan(grade.reward) for grade in grades if grade.reason == "bad_gold")
    assert len([r for r in caplog.records if "cannot be read" in r.message]) == 1


def test_of_many_golds_that_cannot_be_read_a_few_are_logged_and_the_others_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), Grader(limits=Limits(workers=1)) as grader:
        for _ in range(2):
            grader.grade([(rf"\frac{{{i}}}{{", box("4")) for i in range(12)])
    named = [r.message for r in caplog.records if "its problem is skipped" in r.message]
    assert len(named) == 5 and "{0}" in named[0] and "{4}" in named[4]
    assert [r.message for r in caplog.records if r.message not in named] == [
        "further right answers that cannot be read are only counted",
        "7 more right answers that cannot be read",
    ]


def test_grading_works_from_a_thread(grader: Grader) -> None:
    """F58: alarms work in the main thread only, and a verifier that uses them fails everywhere else."""
    grades = []
    pairs = [("5", box("5")), (r"\sqrt{12}", box(r"2\sqrt{3}"))]
    thread = threading.Thread(target=lambda: grades.extend(grader.grade(pairs)))
    thread.start()
    thread.join()
    assert [grade.reason for grade in grades] == ["correct", "correct"]


def test_marked_answers() -> None:
    with Grader(Form.MARKED) as grader:
        cases = [
            ("18", "9 * 2 = 18\n#### 18", "correct"),
            ("18", "The answer is 18.", "correct"),
            ("18", "The answer is $18.50.", "wrong"),
            ("1,234", "So the answer is: 1,234 dollars.", "correct"),
            ("42", "The answer is not 42.", "wrong"),
            ("2", "The final answer is 2 2/3", "wrong"),  # F60
            ("10", "The final answer is 4 10/3", "wrong"),
            ("5", "The number 5 came up.", "unparsed"),
            ("7", r"The answer is \boxed{7}", "correct"),
            ("3", "The answer is 4.\nThe answer is 3.", "correct"),
            ("34", "**Answer:** 34", "correct"),
            ("34", "**Answer:** 35", "wrong"),
            ("34", "**Answer: 34**", "correct"),
            ("34", "**Answer: 34.**", "correct"),
            ("34", "**Answer**: 34", "correct"),
            ("34", "***Answer:*** **34**", "correct"),
            ("34", "The **answer** is **34**.", "correct"),
            ("34", "*Answer:* 34", "correct"),
            ("34", "Answer:\n\\boxed{34}", "correct"),
            ("34", "**Answer:**\n\n$$\n\\boxed{34}\n$$", "correct"),
            ("34", "Answer:\nI do not know. Perhaps \\boxed{34}", "unparsed"),
            ("34", "Answer:\n34 would be too much", "unparsed"),
            ("34", "Answer: *34*", "correct"),
            ("34", "Answer:\r\n\\boxed{34}", "correct"),
            ("34", "Answer：34", "correct"),
        ]
        grades = grader.grade([(gold, response) for gold, response, _ in cases])
    assert [grade.reason for grade in grades] == [reason for _, _, reason in cases]


def test_every_reason_is_counted() -> None:
    with Grader() as grader:
        grader.grade([("5", box("5")), ("5", box("6")), ("5", ""), ("", box("5"))])
        assert grader.counts == {"correct": 1, "wrong": 1, "unparsed": 1, "bad_gold": 1}


def test_neither_torch_nor_sympy_is_imported_to_grade_numbers() -> None:
    code = (
        "import sys; from lagproof.grading.grader import Grader\n"
        "with Grader() as g: assert g.grade([('5', '\\\\boxed{5}')])[0].reward == 1\n"
        "assert not {'torch', 'sympy', 'math_verify', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_answer() -> None:
    import lagproof as lp

    assert lp.grade("0.5", r"\frac{1}{2}") == Grade(1.0, "correct")
    assert lp.grade(r"so \boxed{x+x}", "2x", form="boxed").reward == 1.0
    assert lp.grade("so 3", "3", form="boxed").reason == "unparsed"
    assert math.isnan(lp.grade("3", "").reward)
    with pytest.raises(ConfigError, match="must be boxed"):
        lp.grade("3", "3", form="box")
