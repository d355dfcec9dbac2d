"""Says of a run whose objective acts on nothing that it does, while there is time to change it and at its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from lagproof.data.rows import Row
from lagproof.objectives import Objective

WINDOW = 20
"""Steps after which it can first be said."""


class IdleNote:
    """Asks an objective about the rows of its run (``Objective.idle``).

    Args:
        objective: of the run.
        note: called with the sentence: once during the run, and once at its end.
    """

    def __init__(self, objective: Objective, note: Callable[[str], None]) -> None:
        self._objective, self._note = objective, note
        self._recent: deque[Row] = deque(maxlen=WINDOW)
        self._said = False

    def before(self, on_row: Callable[[Row], None]) -> Callable[[Row], None]:
        """A callback that calls ``on_row`` after it has looked at the row."""

        def both(row: Row) -> None:
            self.observe(row)
            on_row(row)

        return both

    def observe(self, row: Row) -> None:
        """The next row of the run."""
        if self._said or row.step == 0 or row.outcome is not None:
            return
        self._recent.append(row)
        if len(self._recent) == WINDOW and (found := self._objective.idle(self._recent)) is not None:
            self._said = True
            self._note(f"step {row.step}, the last {WINDOW} steps: {found}")

    def finish(self, rows: Iterable[Row]) -> None:
        """All rows of the run, which has ended."""
        trained = [row for row in rows if row.step > 0 and row.outcome is None]
        if (found := self._objective.idle(trained)) is not None:
            self._note(f"the whole run: {found}")
