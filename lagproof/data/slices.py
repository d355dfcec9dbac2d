"""What a metric is of: its name, and the part of the batch it is over. Imports no torch.

One flat key exists at the border only (JSON Lines, trackers): ``d_bar``, ``age/32-63/d_bar``, ``sign/positive/d_bar``,
``task/gsm8k/eval/accuracy``. It is written by :attr:`Key.flat` and read by :meth:`Key.parse`, and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Sign(StrEnum):
    """The tokens, or responses, whose advantage has this sign."""

    POSITIVE = "positive"
    NEGATIVE = "negative"

    @property
    def flat(self) -> str:
        return f"sign/{self.value}"


@dataclass(frozen=True, order=True)
class AgeBand:
    """The tokens that are ``first`` to ``last`` optimiser updates old, both included."""

    first: int
    last: int

    @property
    def label(self) -> str:
        """``7``, or ``32-63``."""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def flat(self) -> str:
        return f"age/{self.label}"


@dataclass(frozen=True, order=True)
class OfTask:
    """The responses to one task of a mixture."""

    name: str

    @property
    def flat(self) -> str:
        return f"task/{self.name}"


Slice = Sign | AgeBand | OfTask


@dataclass(frozen=True)
class Key:
    """The name of a metric, and what part of the batch it is over.

    Attributes:
        name: ``d_bar``, ``sat/q``, ``eval/accuracy``, ``time/step_s``.
        of: the part; ``None`` is all of it.
    """

    name: str
    of: Slice | None = None

    @property
    def flat(self) -> str:
        """The one name under which it is written."""
        return self.name if self.of is None else f"{self.of.flat}/{self.name}"

    @classmethod
    def parse(cls, flat: str) -> Key:
        """The inverse of :attr:`flat`."""
        kind, _, rest = flat.partition("/")
        label, _, name = rest.partition("/")
        if not name:
            return cls(flat)
        if kind == "sign" and label in set(Sign):
            return cls(name, Sign(label))
        if kind == "age":
            first, _, last = label.partition("-")
            return cls(name, AgeBand(int(first), int(last or first)))
        return cls(name, OfTask(label)) if kind == "task" else cls(flat)
