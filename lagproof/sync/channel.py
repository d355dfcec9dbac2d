"""The seam through which weights go from the learner to the engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor


class Channel(Protocol):
    """A publication is one version: complete or not at all, however many pieces it travels in."""

    @property
    def version(self) -> int | None:
        """The newest version that is complete, ``None`` before the first."""
        ...

    def publish(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Make a version available; versions only grow."""
        ...

    def fetch(self) -> tuple[int, Mapping[str, Tensor]]:
        """The newest complete version and its weights, which later steps of the learner do not change."""
        ...
