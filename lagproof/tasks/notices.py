"""Log lines about many things of one kind: the first few, and at the end how many more there were."""

from __future__ import annotations

import logging

SHOWN = 5
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
        self._counted = SHOWN

    def tell(self, key: str, *values: object) -> None:
        """One thing, known by ``key``."""
        if key in self._seen:
            return
        self._seen.add(key)
        if len(self._seen) <= SHOWN:
            self._log.warning(self._message, *values)
        elif len(self._seen) == SHOWN + 1:
            self._log.warning("further %s are only counted", self._kind)

    def close(self) -> None:
        """Say how many were not written out. May be called again."""
        if len(self._seen) > self._counted:
            self._log.warning("%d more %s", len(self._seen) - self._counted, self._kind)
            self._counted = len(self._seen)
