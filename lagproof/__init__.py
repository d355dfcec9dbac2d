"""Asynchronous reinforcement learning for language models that stays stable on stale data.

The public surface is what this module exports; everything else may move. Names are loaded when they are first used,
so that the parts that need no torch (grading, configuration) start without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lagproof.config import Config
    from lagproof.data.tokens import Counts, TokenBatch
    from lagproof.dumps.doctor import doctor
    from lagproof.dumps.whatif import whatif
    from lagproof.errors import LagproofError
    from lagproof.evaluation.run import evaluate
    from lagproof.functional import loss
    from lagproof.grading.grader import grade
    from lagproof.metrics.mismatch import mismatch
    from lagproof.objectives import OBJECTIVES, Weighting, objective
    from lagproof.runs.run import Run
    from lagproof.runtime.train import train

_WHERE = {
    "OBJECTIVES": "lagproof.objectives",
    "Config": "lagproof.config",
    "Counts": "lagproof.data.tokens",
    "LagproofError": "lagproof.errors",
    "Run": "lagproof.runs.run",
    "TokenBatch": "lagproof.data.tokens",
    "Weighting": "lagproof.objectives",
    "doctor": "lagproof.dumps.doctor",
    "evaluate": "lagproof.evaluation.run",
    "grade": "lagproof.grading.grader",
    "loss": "lagproof.functional",
    "mismatch": "lagproof.metrics.mismatch",
    "objective": "lagproof.objectives",
    "train": "lagproof.runtime.train",
    "whatif": "lagproof.dumps.whatif",
}

__all__ = [
    "OBJECTIVES",
    "Config",
    "Counts",
    "LagproofError",
    "Run",
    "TokenBatch",
    "Weighting",
    "doctor",
    "evaluate",
    "grade",
    "loss",
    "mismatch",
    "objective",
    "train",
    "whatif",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'lagproof' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        module = importlib.import_module(_WHERE[name])
    except ModuleNotFoundError as error:
        from lagproof.errors import MissingPackageError

        raise MissingPackageError.of(error) or error from error
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
