"""Short word problems with one addition or subtraction, written for this package. Imports no torch."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

_NAMES = (
    "Aisha Bruno Chen Dalia Emeka Freya Goran Hana Imre Jamila Kofi Lena Mateo Nadia Olek Priya Quinn Rosa Sami Tove"
)
_THINGS = (
    "marbles stickers shells pencils buttons cards stamps beads coins ribbons apples walnuts cookies plums tickets "
    "postcards pebbles candles crayons acorns"
)
_PLACES = "basket jar drawer tin box bag"

# A story and the sign between its numbers a and b.
_STORIES = (
    ("{x} has {a} {t}. {y} brings {b} more. How many {t} does {x} have now?", "+"),
    ("There are {a} {t} in one {p} and {b} {t} in another. How many {t} are there altogether?", "+"),
    ("{x} found {a} {t} on Monday and {b} on Tuesday. How many {t} did {x} find in the two days?", "+"),
    ("{y} owns {a} {t}, and {x} owns {b} more than {y}. How many {t} does {x} own?", "+"),
    ("After {x} sold {b} {t}, {a} were left. How many {t} were there before the sale?", "+"),
    ("{x} painted {a} {t} and {y} painted {b}. How many {t} did they paint together?", "+"),
    ("{x} had {a} {t} and gave {b} of them to {y}. How many {t} does {x} still have?", "-"),
    ("A {p} holds {a} {t}. {x} takes {b} out. How many {t} stay in the {p}?", "-"),
    ("{x} collected {a} {t}; {b} of them broke. How many {t} are whole?", "-"),
    ("{y} has {a} {t}, and {x} has {b} fewer than {y}. How many {t} does {x} have?", "-"),
    ("{x} needs {a} {t} and already has {b}. How many more {t} must {x} get?", "-"),
    ("{x} counted {a} {t}, {y} counted {b}. How many more {t} did {x} count than {y}?", "-"),
    ("Of the {a} {t} in a {p}, {b} are red and the others are blue. How many {t} are blue?", "-"),
)


@dataclass(frozen=True)
class WordProblem:
    """A question, its answer, and the one step between them (``7 + 5 = 12``)."""

    question: str
    answer: str
    step: str


def word_problem(seed: int, split: int, index: int, largest: int, *, held_out: bool) -> WordProblem:
    """A pure function of its arguments; one question in eight, whatever the seed, is held out for evaluation.

    Args:
        seed: >= 0.
        split: which stream of problems.
        index: which problem of the stream.
        largest: no number in a problem or its answer is larger, >= 4.
        held_out: whether the problem is one of those that are held out.
    """
    rng = np.random.default_rng([seed, split, index])
    while True:
        problem = _draw(rng, largest)
        if (zlib.crc32(problem.question.encode()) % 8 == 0) == held_out:
            return problem


def _draw(rng: np.random.Generator, largest: int) -> WordProblem:
    story, sign = _STORIES[rng.integers(len(_STORIES))]
    names, things, places = _NAMES.split(), _THINGS.split(), _PLACES.split()
    x, y = (names[i] for i in rng.choice(len(names), size=2, replace=False))
    total = int(rng.integers(4, largest + 1))
    part = int(rng.integers(2, total - 1))
    a, b, result = (total - part, part, total) if sign == "+" else (total, part, total - part)
    thing, place = things[rng.integers(len(things))], places[rng.integers(len(places))]
    return WordProblem(story.format(x=x, y=y, a=a, b=b, t=thing, p=place), str(result), f"{a} {sign} {b} = {result}")
