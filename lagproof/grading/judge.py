"""What can be said about an answer without algebra; the rest is a question for the verifier."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from lagproof.grading import numbers
from lagproof.grading.clean import balanced, clean, depth
from lagproof.grading.extract import MAX_CHARS, last_box
from lagproof.grading.golds import is_missing, written_once
from lagproof.grading.notation import choice, congruence, letters, named_choice, named_set, without_condition
from lagproof.grading.units import differ, durations, is_word, other_money, split_unit

MAX_DEPTH = 12
"""Nested brackets at most: reading ten takes the verifier half a second, and each more doubles it."""


class Verdict(StrEnum):
    """Why an answer got its reward."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSED = "unparsed"  # there is no answer, or nothing that can be read as one within the limits
    TIMED_OUT = "timed_out"  # the verifier was stopped at its time limit
    FAILED = "failed"  # the verifier raised, crashed or ran out of memory
    BAD_GOLD = "bad_gold"  # the right answer itself is missing or cannot be read


@dataclass(frozen=True)
class Question:
    """Two cleaned texts that need algebra to be compared."""

    gold: str
    answer: str


MARKED_WORDS = re.compile(r"\\(?:text(?:normal|bf|it|rm|sf|tt)?|mbox|hbox)\s*\{([^{}]*)\}")
_BARE_WORDS = re.compile(r"^\(?[^\W\d_](?:[^\W\d_]|[' .-])*\)?")
_BASED = re.compile(r"^([0-9A-Za-z]++) ?_ ?\{? ?(?:\\text ?\{)? ?(\w+) ?\}? ?\}?")
_THREE_DIGITS = re.compile(r"^\d{1,3}(?:,\d{3})+")
_LETTERS = frozenset("abcdefghij")
"""Of choices; they have no case."""
_SHORT_WORDS = frozenset(["yes", "no", "on", "off", "odd", "even", "true", "false"])
_BASE_NAMES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_BASES = {name: base for base, name in enumerate(_BASE_NAMES, start=2)}


def first_look(gold: str, answer: str) -> Verdict | Question:
    """A verdict where none of the two needs algebra, else the question to ask.

    Args:
        gold: the right answer as the data set has it, boxed or not.
        answer: what was found in the response, empty if nothing was.
    """
    right = clean_gold(gold)
    if right is None:
        return Verdict.BAD_GOLD
    if not answer or len(answer) > MAX_CHARS or depth(answer) > MAX_DEPTH:
        return Verdict.UNPARSED
    given = clean(_spaced_list(answer)) if "," in right else clean(answer)
    if not given:
        return Verdict.UNPARSED
    if other_money(gold, answer):
        return Verdict.WRONG
    if _dense(right) == _dense(given):
        return Verdict.CORRECT
    right, given = named_set(right, words_of(right)), named_set(given, words_of(given))
    return next(filter(None, (look(right, given) for look in _LOOKS)))


def _dense(text: str) -> str:
    """Without the spaces that say nothing: all but those between two letters or digits."""
    return re.sub(r"(?<![^\W_]) | (?![^\W_])", "", text)


def _spaced_list(answer: str) -> str:
    """``101,121`` as a list where the right answer is one: three digits behind a comma are no thousands then."""
    return answer.replace(",", ", ") if _THREE_DIGITS.fullmatch(answer.strip(" ${}\\")) else answer


@lru_cache(maxsize=4096)
def clean_gold(gold: str) -> str | None:
    """The right answer as plain LaTeX, or ``None`` where there is none that could be read."""
    gold = written_once(gold)
    if is_missing(gold) or not balanced(gold):
        return None
    inner = last_box(gold) if "\\boxed" in gold or "\\fbox" in gold else gold.strip()
    if not inner or is_missing(inner) or len(inner) > MAX_CHARS or depth(inner) > MAX_DEPTH:
        return None
    return clean(inner) or None


def _by_choice(gold: str, answer: str) -> Verdict | Question | None:
    """``\\textbf{(C)}\\ 5`` against ``C`` or ``5``, on either side: the letter of a choice with what it stands for."""
    right, given = letters(gold), letters(answer)
    if right and given and (right[1] or given[1]):
        return Verdict.CORRECT if sorted(right[0]) == sorted(given[0]) else Verdict.WRONG
    if re.fullmatch("[A-J]", gold) and (named := named_choice(answer)):
        return Verdict.CORRECT if named == gold else Verdict.WRONG
    right, given = choice(gold), choice(answer)
    if right is None and given is None:
        return None
    both = right[0] if right else words_of(gold), given[0] if given else words_of(answer)
    if all(letter is not None and len(letter) == 1 for letter in both):
        return Verdict.CORRECT if str(both[0]).lower() == str(both[1]).lower() else Verdict.WRONG
    if right is not None and given is not None:
        return None
    look = first_look(right[1] if right else gold, given[1] if given else answer)
    return None if look is Verdict.BAD_GOLD else look


def _by_words(gold: str, answer: str) -> Verdict | None:
    """Compare words (``\\text{Monday}``, ``even``, ``(C)``, ``3:15 p.m.``), case and brackets aside."""
    unit = split_unit(_unmarked(gold), plain_number=False)[1]
    in_words = _letters(gold) or MARKED_WORDS.fullmatch(gold)
    if in_words and not (unit and unit.readings) and _plain(gold) == _plain(answer):  # units have case: MPa, mPa
        return Verdict.CORRECT
    right, given = words_of(gold), words_of(answer)
    if right is None or numbers.read(right) is not None or (MARKED_WORDS.fullmatch(gold) and re.search(r"\d", right)):
        return None  # "five", and a number with words, is a value
    if right == given and (_letters(gold) or right in _LETTERS or _cased(gold) == _cased(answer)):
        return Verdict.CORRECT
    letters = len(right) == 1 and given is not None and len(given) == 1
    return Verdict.WRONG if letters or MARKED_WORDS.fullmatch(gold) or _are_words(gold) else None


def _letters(text: str) -> bool:
    """Whether there is a word in it, and not a command or a variable alone."""
    return any(is_word(word) for word in re.findall(r"(?<![A-Za-z\\])[A-Za-z]+", MARKED_WORDS.sub(r" \1 ", text)))


def _cased(text: str) -> str:
    """Letters alone: those of variables have case, those of words and choices have none."""
    return re.sub(r"[\s().,;:]+", "", MARKED_WORDS.sub(r"\1", text))


def _plain(text: str) -> str:
    return re.sub(r"(?<!\d)[\s.,;]+|[\s.,;]+(?![\s.,;\d])", "", MARKED_WORDS.sub(r"\1", text)).lower()


def _are_words(text: str) -> bool:
    """Whether bare letters are words or labels (``even``, ``ABC``, ``IV``, ``no``), and not a product of variables."""
    words = re.findall(r"[^\W\d_]+", text)
    if not words or "\\" in text:
        return False
    if not text.isascii() and not re.search(r"[\d=<>+*/^]", text):
        return True
    label = len(words) == 1 and words[0].isupper() and (len(words[0]) > 2 or set(words[0]) <= set("IVXLCDM"))
    return label or words[0].lower() in _SHORT_WORDS or all(len(word) > 3 and is_word(word) for word in words)


def words_of(text: str) -> str | None:
    """Words in one form, case and brackets aside; ``None`` for what is not in words."""
    marked = MARKED_WORDS.fullmatch(text)
    if marked is None and _BARE_WORDS.fullmatch(text) is None:
        return None
    words = marked[1] if marked else text
    return " ".join(re.sub(r"[().,;:]", " ", words).lower().split()) or None


def _by_base(gold: str, answer: str) -> Verdict | None:
    """``101_2``: digits and base must agree; one side may leave the base out."""
    right, given = based(gold), based(answer)
    if right is None and given is None:
        return None
    right = right or ((gold.lower(), None) if gold.isalnum() else None)
    given = given or ((answer.lower(), None) if answer.isalnum() else None)
    if right is None or given is None:
        return None
    same_base = right[1] == given[1] or right[1] is None or given[1] is None
    same = right[0].lstrip("0") == given[0].lstrip("0") and same_base
    return Verdict.CORRECT if same else Verdict.WRONG


def based(text: str) -> tuple[str, int | None] | None:
    """Digits and base of ``101_2``; ``None`` for anything else."""
    match = _BASED.fullmatch(text)
    if match is None or not re.search("[0-9]", match[1]):
        return None
    digits, name = match[1].lower(), match[2].lower()
    base = _BASES.get(name) or (int(name) if name.isdecimal() and len(name) < 3 else 0)
    if not 2 <= base <= 36 or any(int(digit, 36) >= base for digit in digits):
        return None
    return digits, base


def _by_congruence(gold: str, answer: str) -> Verdict | None:
    r"""``n \equiv 3 \pmod 4``: the same residues of the same modulus, and of the same name where both have one."""
    right, given = congruence(gold), congruence(answer)
    if right is None or right.name is None:
        return None
    if given is None:
        return Verdict.WRONG
    same = (right.residues, right.modulus) == (given.residues, given.modulus) and given.name in (None, right.name)
    return Verdict.CORRECT if same else Verdict.WRONG


def _by_duration(gold: str, answer: str) -> Verdict | None:
    """``3 h 20 min``: number by number and unit by unit."""
    right, given = durations(gold), durations(answer)
    if right is None or given is None:
        return None
    return Verdict.CORRECT if right == given else Verdict.WRONG


def _by_condition(gold: str, answer: str) -> Verdict | Question | None:
    r"""``n(n+1) \text{ for } n \ge 1``: without what says for which; two that say different things are different."""
    (right, right_says), (given, given_says) = without_condition(gold), without_condition(answer)
    if right_says is None and given_says is None:
        return None
    if right_says and given_says and _dense(right_says) != _dense(given_says):
        return Verdict.WRONG
    return first_look(right, given)


def _by_value(gold: str, answer: str) -> Verdict | Question:
    right, right_unit = split_unit(_unmarked(gold), plain_number=False)
    right_number = numbers.read(right)
    given, given_unit = split_unit(_unmarked(answer), plain_number=right_number is not None)
    if differ(right_unit, given_unit):
        return Verdict.WRONG
    given_number = numbers.read(given)
    if right_number is not None and given_number is not None:
        return Verdict.CORRECT if numbers.equal(right_number, given_number) else Verdict.WRONG
    return Question(right, given) if given else Verdict.UNPARSED


_LOOKS = (_by_choice, _by_condition, _by_congruence, _by_duration, _by_words, _by_base, _by_value)
"""The first that has something to say says it."""


def _unmarked(text: str) -> str:
    marked = MARKED_WORDS.fullmatch(text)
    return clean(marked[1]) if marked else text
