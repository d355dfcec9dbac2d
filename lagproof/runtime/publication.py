"""A channel inside one process."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import Tensor

from lagproof.errors import UsageError


class MemoryChannel:
    """Keeps a copy of the newest published weights; a publication replaces the one before as a whole."""

    def __init__(self) -> None:
        self._newest: tuple[int, Mapping[str, Tensor]] | None = None

    @property
    def version(self) -> int | None:
        return None if self._newest is None else self._newest[0]

    def publish(self, version: int, weights: Mapping[str, Tensor]) -> None:
        """Copy the weights; if copying fails, the publication before stays the newest.

        Raises:
            UsageError: a version that is not newer than the one before.
        """
        if self._newest is not None and version <= self._newest[0]:
            raise UsageError(
                f"version {version} was published after version {self._newest[0]}: versions must only grow"
            )
        copies = {name: weight.detach().clone() for name, weight in weights.items()}
        self._newest = (version, MappingProxyType(copies))

    def fetch(self) -> tuple[int, Mapping[str, Tensor]]:
        """The newest version and its weights, to be read and not written: every fetch returns the same tensors.

        Raises:
            UsageError: nothing was published yet.
        """
        if self._newest is None:
            raise UsageError("nothing was published yet: publish the starting weights before anything is sampled")
        return self._newest
