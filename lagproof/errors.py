"""The exceptions of lagproof.

::

    LagproofError
    ├── UsageError (ValueError)     the caller asked for something that cannot be; exit code 2
    │   ├── ConfigError             a key or a value of a configuration or of an objective
    │   │   └── UnknownNameError    a name that is in no table; carries the nearest one
    │   ├── InputError              tensors, data sets, dumps, model folders
    │   │   ├── DataChoiceError     a data set that needs another path, split or subset; carries those there are
    │   │   └── PromptError         a prompt that a model cannot read
    │   └── RunDirError             a run directory that exists, is missing, or cannot be written
    │       └── DiskError           the disk is full or broken; exit code 1
    ├── MissingPackageError (ImportError)  a package of an extra is not installed; names the extra
    ├── CheckpointError             a checkpoint that cannot be read
    ├── RunStoppedError             a run that cannot continue: no signal, gradients that stay non-finite, a lost engine
    └── InterruptedRunError         a run that was asked to stop and has saved everything; exit code 130

A message says what, what was got, what is allowed, and what to do next.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Literal


class LagproofError(Exception):
    """Root of every error that lagproof raises on purpose."""


class UsageError(LagproofError, ValueError):
    """The caller asked for something that cannot be."""


class ConfigError(UsageError):
    """A key or a value of a configuration, or an option of an objective, is not allowed."""


class UnknownNameError(ConfigError):
    """A name that is in no table.

    Args:
        kind: what was looked up, in words: ``"objective"``, ``"configuration key"``.
        got: the name that was not found.
        allowed: the names that exist.
        hint: what to do instead, where that is known; else the nearest name is proposed.
    """

    def __init__(self, kind: str, got: str, allowed: Iterable[str], hint: str = "") -> None:
        self.kind, self.got, self.allowed = kind, got, sorted(allowed)
        self.nearest = None if hint else _nearest(got, self.allowed)
        hint = f"did you mean {self.nearest!r}? " if self.nearest else f"{hint}; " if hint else ""
        super().__init__(f"unknown {kind} {got!r}: {hint}allowed: {', '.join(self.allowed) or '(none)'}")


class InputError(UsageError):
    """Tensors, a data set, a dump or a model folder that cannot be used."""


class DataChoiceError(InputError):
    """A data set that can be used once another choice is made.

    Args:
        message: in words.
        option: what to choose.
        allowed: what there is, as far as that can be known.
    """

    def __init__(self, message: str, option: Literal["path", "split", "subset"], allowed: Iterable[str] = ()) -> None:
        self.option: Literal["path", "split", "subset"] = option
        self.allowed = tuple(allowed)
        super().__init__(message)


class PromptError(InputError):
    """A prompt that a model cannot read.

    Args:
        model: which, as it was loaded.
        problem: what is wrong, as it continues the name of the model.
        remedy: what to do next.
    """

    def __init__(self, model: str, problem: str, remedy: str) -> None:
        self.model, self.problem, self.remedy = model, problem, remedy
        super().__init__(f"{model} {problem}: {remedy}")


class RunDirError(UsageError):
    """A run directory that exists already, is missing, or cannot be written."""


class DiskError(RunDirError):
    """A file that could not be written since the disk is full or broken: nothing that the caller asked for is wrong."""


class MissingPackageError(LagproofError, ImportError):
    """A package that belongs to an extra of lagproof is not installed."""

    @classmethod
    def of(cls, error: ModuleNotFoundError) -> MissingPackageError | None:
        """What to install, where the module that is missing belongs to an extra; else ``None``."""
        module = (error.name or "").partition(".")[0]
        package = {"vl_convert": "vl-convert-python"}.get(module, module.replace("_", "-"))
        extras = _extras().get(package)
        if not extras:
            return None
        return cls(f"{package} is not installed: pip install 'lagproof[{extras[0]}]' has it", name=error.name)


class CheckpointError(LagproofError):
    """A checkpoint that is incomplete or unreadable."""


class RunStoppedError(LagproofError):
    """A run that cannot continue, with the reason in words."""


class InterruptedRunError(LagproofError):
    """A run that was asked to stop (Ctrl-C, SIGTERM): the step was finished and everything is saved."""


def _nearest(got: str, names: Sequence[str]) -> str | None:
    """The most similar name, by its last part; before all others one with the same letters (``gpro``: ``grpo``)."""
    last = {_folded(name): name for name in reversed(names)}
    word = _folded(got)
    near = difflib.get_close_matches(word, list(last), n=5)
    swapped = (name for name in near if sorted(name) == sorted(word))
    found = next(swapped, near[0] if near else None)
    return None if found is None else last[found]


def _folded(name: str) -> str:
    """The last part of a name, as all ways of writing it have it: ``SAT_GRPO`` and ``sat-grpo``."""
    return name.rsplit(".", 1)[-1].lower().replace("-", "_")


def _extras() -> dict[str, list[str]]:
    """The extras that bring each package, as the installed metadata says."""
    import importlib.metadata  # here: it costs more than the rest of ``import lagproof``, and is needed once in a while

    out: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("lagproof") or ():
        found = re.match(r"([A-Za-z0-9_.-]+).*extra == [\"']([a-z-]+)[\"']", line)
        if found is not None and found[2] not in ("dev", "all"):
            out.setdefault(found[1].lower().replace("_", "-"), []).append(found[2])
    return out
