"""What an answer is worth: math-verify does the mathematics, behind limits, and what it gets wrong is put right.

Whole numbers are compared here, at once. Whatever else an answer says is read in a pool of killable processes, so that
no answer can hang, exhaust or crash a run; here only its place in the response is looked up, which takes a time
linear in the length of the response. Imports neither torch nor sympy.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lagproof.errors import ConfigError
from lagproof.grading.extract import Form, extract
from lagproof.grading.judge import Verdict
from lagproof.grading.pool import Limits, Pool, Question, Reply
from lagproof.grading.worker import KEY, VERDICT

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Grade:
    """``reward`` in [0, 1], NaN where the response could not be graded; ``reason`` in one word."""

    reward: float
    reason: str


def grade(answer: str, gold: str, *, form: Form | str = Form.WHOLE) -> Grade:
    """What one answer is worth; for many, a :class:`Grader` keeps its processes.

    Args:
        answer: a response, or the answer alone.
        gold: the right answer.
        form: where the answer is in ``answer``: ``whole`` (it is nothing else), ``boxed`` or ``marked``.

    Returns:
        ``reward`` 1 or 0, NaN where the right answer itself cannot be read, and why in one word.

    Raises:
        ConfigError: another form.
    """
    if form not in list(Form):
        raise ConfigError(f"form = {form!r}: must be {' | '.join(Form)}")
    with Grader(Form(form)) as grader:
        return grader.grade([(gold, answer)])[0]


class Grader:
    """Grades responses against right answers. Works from any thread.

    Rewards: 1 for ``correct``; NaN for ``bad_gold``, because the response cannot be graded; 0 for everything else.

    Attributes:
        counts: how often each reason was given.
    """

    def __init__(self, form: Form = Form.BOXED, limits: Limits | None = None) -> None:
        self.form = form
        self.counts: Counter[str] = Counter()
        self._pool = Pool(limits)
        self._bad_golds = Notices(
            log, "the right answer %.200r cannot be read: its problem is skipped", "right answers that cannot be read"
        )
        self._failures = Notices(
            log, "the verifier failed on an answer, which gets no reward: %s", "failures of the verifier"
        )

    def grade(self, pairs: Sequence[tuple[str, str]]) -> list[Grade]:
        """One grade a pair of right answer and response, in order. Never raises because of what they say."""
        answers = [extract(response, self.form) for _, response in pairs]
        looks = [_first_look(gold, answer) for (gold, _), answer in zip(pairs, answers, strict=True)]
        questions = list(dict.fromkeys(look for look in looks if not isinstance(look, Verdict)))
        replies = dict(zip(questions, self._pool.ask(questions), strict=True))
        grades = []
        for (gold, _), look in zip(pairs, looks, strict=True):
            reply = Reply(look.value) if isinstance(look, Verdict) else replies[look]
            self._report(gold, reply)
            grades.append(Grade(reward(Verdict(reply.word)), reply.word))
        return grades

    def key(self, gold: str, response: str) -> str | None:
        """What a response says, in one form for one meaning as far as no algebra is needed; ``None`` for nothing.

        Also ``None`` for an answer that cannot be read within the limits.
        """
        answer = extract(response, self.form)
        if answer is None:
            return None
        if _WHOLE_NUMBER.fullmatch(answer) and _WHOLE_NUMBER.fullmatch(gold):
            return str(int(answer))
        word = self._pool.ask([(KEY, gold, answer)])[0].word
        return word.removeprefix(KEY) if word.startswith(KEY) else None

    def close(self) -> None:
        """End the grading processes, and say how often what was said a few times happened. May be called twice."""
        self._pool.close()
        self._bad_golds.close()
        self._failures.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _report(self, gold: str, reply: Reply) -> None:
        """Count, and say what nobody would see in a reward."""
        self.counts[reply.word] += 1
        if reply.word == Verdict.BAD_GOLD:
            self._bad_golds.add(gold, gold)
        elif reply.word == Verdict.FAILED:
            self._failures.add(reply.detail, reply.detail)


_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")


def _first_look(gold: str, answer: str | None) -> Verdict | Question:
    """A verdict on two whole numbers, or on no answer to one; else the question for the pool."""
    if _WHOLE_NUMBER.fullmatch(gold) and answer is None:
        return Verdict.UNPARSED
    if answer is not None and _WHOLE_NUMBER.fullmatch(gold) and _WHOLE_NUMBER.fullmatch(answer):
        return Verdict.CORRECT if int(gold) == int(answer) else Verdict.WRONG
    return (VERDICT, gold, answer or "")


def reward(verdict: Verdict) -> float:
    """1 for a right answer, NaN where nothing can be said about the response, 0 otherwise."""
    if verdict is Verdict.BAD_GOLD:
        return math.nan
    return 1.0 if verdict is Verdict.CORRECT else 0.0


NOTICES_SHOWN = 5
"""Lines of one kind that are written out."""


class Notices:
    """Says of each thing once what is wrong with it, for the first few; the others are counted.

    Args:
        log: where the lines go, as warnings.
        message: of one thing, with a place for each of its values.
        kind: what the things are, in words, for the count.
    """

    def __init__(self, log: logging.Logger, message: str, kind: str) -> None:
        self._log, self._message, self._kind = log, message, kind
        self._seen: set[str] = set()
        self._counted = NOTICES_SHOWN

    def add(self, key: str, *values: object) -> None:
        """One thing, known by ``key``."""
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self._seen) <= NOTICES_SHOWN:
            self._log.warning(self._message, *values)
        elif len(self._seen) == NOTICES_SHOWN + 1:
            self._log.warning("further %s are only counted", self._kind)

    def close(self) -> None:
        """Say how many were not written out. May be called again."""
        if len(self._seen) > self._counted:
            self._log.warning("%d more %s", len(self._seen) - self._counted, self._kind)
            self._counted = len(self._seen)
