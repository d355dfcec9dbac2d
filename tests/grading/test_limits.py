"""No answer costs more than it may: patterns take a time linear in what they read, and all of it can be killed."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time

import pytest

import lagproof.grading
from lagproof.grading.extract import MAX_CHARS, Form, extract
from lagproof.grading.grader import Grader
from lagproof.grading.judge import Verdict, first_look
from lagproof.grading.pool import Limits
from lagproof.grading.votes import answer_key

REPEATS = 10_000
LIMIT_S = 2.0
"""CPU seconds: a linear pattern takes a hundredth, a cubic one days."""

CHARACTERS = [
    *" ~.,;:!?*_^'`$%&#@|/\\+-=<>()[]{}0x1aIé中½²−√°\n\t",
]
PIECES = [
    *CHARACTERS,
    *(
        r"\,",
        r"\ ",
        r"\quad ",
        r"\text{",
        r"\text{a}",
        r"\text{ a",
        r"\frac{",
        r"\frac1",
        r"\frac",
        r"\sqrt",
        r"\sqrt[",
    ),
    *(
        r"\{",
        r"\}",
        r"\{x|",
        r"\color{a}",
        r"{a\choose ",
        "{ ",
        "( ",
        "a ",
        " a",
        "a.",
        "1 ",
        " 1",
        "1.",
        "1,",
        "1 111 ",
    ),
    *(
        "11 ",
        "111 ",
        "1/",
        "1e",
        "^1",
        "^{",
        "_1",
        "a_",
        "a_a",
        "f(",
        "**",
        "**a",
        "__",
        "and ",
        " or",
        "is ",
        "answer ",
    ),
    *(
        "a=",
        "a:",
        "1:",
        r"\pm",
        "10^",
        "1x10^",
        r"\circ",
        r"\mathrm{ m}",
        "/m",
        "m ",
        "cm^2 ",
        "sin",
        "pi",
        "(A) ",
        "A, ",
    ),
]


def patterns() -> dict[str, re.Pattern[str]]:
    out = {}
    for info in pkgutil.iter_modules(lagproof.grading.__path__):
        module = importlib.import_module(f"lagproof.grading.{info.name}")
        found = {f"{info.name}.{name}": value for name, value in vars(module).items() if isinstance(value, re.Pattern)}
        out.update({name: value for name, value in found.items() if isinstance(value.pattern, str)})
    return out


PATTERNS = patterns()


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_takes_linear_time(name: str) -> None:
    pattern = PATTERNS[name]
    for pieces, repeats in ((CHARACTERS, REPEATS), (PIECES[len(CHARACTERS) :], REPEATS // 5)):
        for text in (prefix + piece * repeats + "x}" for piece in pieces for prefix in ("", "5")):
            began = time.process_time()
            for _ in pattern.finditer(text):
                pass
            pattern.fullmatch(text)
            assert time.process_time() - began < LIMIT_S, (name, text[:20])


@pytest.mark.parametrize("form", Form)
def test_an_answer_beyond_the_bound_is_unparsed_at_once(form: Form) -> None:
    began = time.process_time()
    for piece in PIECES:
        text = piece * REPEATS
        for response in (
            text,
            rf"\boxed{{5{text}x}}",
            f"The answer is 5{text}x",
            rf"\boxed{{{text}",
            "answer is" * REPEATS,
        ):
            answer = extract(response, form)
            assert answer is None or len(answer) <= MAX_CHARS
        assert first_look("7", text) is Verdict.UNPARSED
        assert answer_key(text, "7") is None
    assert time.process_time() - began < LIMIT_S * len(PIECES)


@pytest.mark.parametrize("piece", PIECES)
def test_what_fits_is_read_in_a_moment(piece: str) -> None:
    for text in ((piece * MAX_CHARS)[:MAX_CHARS], ("5" + piece * MAX_CHARS)[: MAX_CHARS - 2] + "x}"):
        began = time.process_time()
        first_look("7", text)
        answer_key(text, "7")
        assert time.process_time() - began < LIMIT_S, piece


def test_whatever_an_answer_says_is_read_behind_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process no answer but a whole number is looked at: what would read it cannot be reached here."""

    def refuse(*_: object) -> None:
        raise AssertionError("read in the process of the run")

    for module in ("clean", "judge", "votes", "units", "numbers", "notation"):
        found = importlib.import_module(f"lagproof.grading.{module}")
        for name in ("clean", "first_look", "answer_key", "split_unit", "read", "choice"):
            if hasattr(found, name):
                monkeypatch.setattr(found, name, refuse)
    with Grader(limits=Limits(time_s=60, workers=1)) as grader:
        pairs = [("5", r"\boxed{5}"), ("5", r"\boxed{5.0}"), ("x", r"\boxed{5" + "~" * 1900 + "x}"), ("", r"\boxed{1}")]
        assert [grade.reason for grade in grader.grade(pairs)] == ["correct", "correct", "wrong", "bad_gold"]
        assert grader.key("5", r"\boxed{5.0}") == "5"
        assert grader.key("5", r"\boxed{}") is None
