"""What ``lagproof doctor`` and ``lagproof whatif`` do: look, print, and say how it ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from lagproof.cli import diagnosing as show
from lagproof.dumps.doctor import diagnose
from lagproof.dumps.whatif import WhatIf, whatif
from lagproof.errors import UsageError

UNUSABLE = 2

T = TypeVar("T")


def run_doctor(path: Path, mapping: Mapping[str, str] | None = None, *, as_json: bool = False) -> int:
    """Print the verdict on ``path``.

    Returns:
        The exit code: 0 healthy, 1 sick, 2 unusable input.
    """
    verdict = _look(lambda: diagnose(path, mapping), path, as_json=as_json)
    if verdict is None:
        return UNUSABLE
    if as_json:
        _print_json(verdict.to_dict())
    else:
        show.verdict(verdict, _console())
    return verdict.exit_code


def run_whatif(
    path: Path,
    objectives: Sequence[str] | None = None,
    mapping: Mapping[str, str] | None = None,
    *,
    present: str | None = None,
    as_json: bool = False,
    page: Callable[[WhatIf], Path] | None = None,
) -> int:
    """Print what other objectives would have done with the tokens of ``path``.

    Args:
        path: a run directory of ours with its rollouts, or a dump.
        objectives: names; ``None`` takes all.
        mapping: our role of a column to its name.
        present: the objective that the others are compared with; ``None``: the run's own, for a dump grpo.
        as_json: for machines.
        page: writes a page of it, and tells where.

    Returns:
        The exit code: 0, or 2 for unusable input.
    """
    found = _look(lambda: whatif(path, objectives, mapping, present), path, as_json=as_json)
    if found is None:
        return UNUSABLE
    written = None if page is None else page(found)
    if as_json:
        _print_json(found.to_dict() | ({} if written is None else {"page": str(written)}))
        return 0
    show.whatif(found, _console())
    if written is not None:
        print(f"\n{written}")
    return 0


def _look(look: Callable[[], T], path: Path, *, as_json: bool) -> T | None:
    """The result, or ``None`` after saying why there is none."""
    try:
        return look()
    except UsageError as error:
        if as_json:
            _print_json({"path": str(path), "status": "unusable", "error": str(error)})
        else:
            print(f"error: {error}", file=sys.stderr)
        return None


def _console() -> Console:
    return Console(highlight=False)


def _print_json(tree: Mapping[str, Any]) -> None:
    print(json.dumps(tree, indent=1, allow_nan=False))
