"""What an answer says, in one form for one meaning, so that answers can be counted; as far as no algebra is needed."""

from __future__ import annotations

import re

from lagproof.grading import numbers
from lagproof.grading.clean import clean, depth, split_top
from lagproof.grading.extract import MAX_CHARS
from lagproof.grading.judge import MARKED_WORDS, MAX_DEPTH, based, clean_gold, words_of
from lagproof.grading.units import differ, split_unit

_SYMBOL = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\([A-Za-z]\))?")
_CONSTANTS = ("e", "i", r"\pi")
_SET = re.compile(r"^\\\{((?:(?!\\\}).)*)\\\}")


def answer_key(answer: str, gold: str) -> str | None:
    """One text for one answer, as far as can be told without algebra; ``None`` where there is none.

    What grading does not look at is left out: names in front of a value where the right answer has none or the same,
    units unless the right answer has another one, the base of digits likewise, and the order of a list unless the
    right answer is a point. So answers that grading tells apart by these have two keys.

    Args:
        answer: what was found in the response.
        gold: the right answer as the data set has it.
    """
    if not answer or len(answer) > MAX_CHARS or depth(answer) > MAX_DEPTH:
        return None
    right = clean_gold(gold) or ""
    names = {name for part in _list(right) for name in _chain(part)[0]}
    keys = [_key(_value(part, names), right) for part in _list(clean(answer))]
    in_order = len(_list(right)) == 1 and right.startswith(("(", "["))
    return ",".join(keys if in_order else sorted(keys)) or None


def _list(text: str) -> list[str]:
    inside = _SET.fullmatch(text)
    return [part.strip() for part in split_top(inside[1] if inside else text, ",;")]


def _chain(text: str) -> tuple[list[str], str]:
    """Names and value of ``x = y = 7`` and ``7 = x``; of anything else no names and the whole."""
    *names, value = (member.strip() for member in split_top(text, "="))
    if len(names) == 1 and numbers.read(names[0]) and _is_name(value):
        return [value], names[0]
    return (names, value) if all(map(_is_name, names)) else ([], text)


def _is_name(text: str) -> bool:
    return text not in _CONSTANTS and (_SYMBOL.fullmatch(text) is not None or words_of(text) is not None)


def _value(text: str, gold_names: set[str]) -> str:
    names, value = _chain(text)
    return value if not gold_names or gold_names == set(names) else text


def _key(text: str, gold: str) -> str:
    right, right_unit = split_unit(gold, plain_number=False)
    marked = MARKED_WORDS.fullmatch(text)
    inner = _without_base(clean(marked[1]) if marked else text, gold)
    value, unit = split_unit(inner, plain_number=numbers.read(right) is not None)
    other = f" {unit}" if differ(right_unit, unit) else ""
    number = numbers.read(value)
    if number is not None:
        return f"{number.value}{'%' if number.percent else ''}{other}"
    return words_of(text) or value.replace(" ", "") + other


def _without_base(text: str, gold: str) -> str:
    given, right = based(text), based(gold)
    if given is None or (right is not None and right[1] != given[1]):
        return text
    return given[0]
