"""What ``lagproof doctor`` and ``lagproof whatif`` do: look, print, and say how it ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.text import Text

from lagproof.cli import tables
from lagproof.cli.tables import say, show_list, wrapped
from lagproof.dumps.doctor import Diagnosis, Status, doctor
from lagproof.dumps.tables import by_sign, overall, removed_by_age
from lagproof.dumps.whatif import WhatIf, whatif
from lagproof.dumps.words import particular
from lagproof.errors import ConfigError, UsageError
from lagproof.monitor.alarm import Severity
from lagproof.settings.toml import parse_override

UNUSABLE = 2
AGE_COLUMNS = 6
_STYLE = {Status.HEALTHY: "green", Status.WATCH: "yellow", Status.UNHEALTHY: "red", Status.UNKNOWN: "magenta"}
_SEVERITY = {Severity.YELLOW: "yellow", Severity.RED: "red"}

T = TypeVar("T")


def run_doctor(
    path: Path,
    mapping: Mapping[str, str] | None = None,
    *,
    as_json: bool = False,
    scale: str | None = None,
    overrides: Sequence[str] = (),
) -> int:
    """Print the verdict on ``path``.

    Args:
        path: a run directory of ours, or a dump.
        mapping: our role of a column to its name.
        as_json: for machines.
        scale: of the model; by default guessed.
        overrides: thresholds, ``alarm.KEY=value``.

    Returns:
        The exit code: 0 healthy, 1 unhealthy, 2 unusable input, 3 unknown.
    """
    verdict = _look(lambda: doctor(path, mapping, scale=scale, overrides=_alarms(overrides)), path, as_json=as_json)
    if verdict is None:
        return UNUSABLE
    if as_json:
        _print_json(verdict.to_dict())
    else:
        show_verdict(verdict, Console(highlight=False))
    return verdict.exit_code


def run_whatif(
    path: Path,
    objectives: Sequence[str] | None = None,
    mapping: Mapping[str, str] | None = None,
    *,
    baseline: str | None = None,
    as_json: bool = False,
    out: Path | None = None,
    command: str | None = None,
) -> int:
    """Print what other objectives would have done with the tokens of ``path``.

    Args:
        path: a run directory of ours with its rollouts, or a dump.
        objectives: names; ``None`` takes all.
        mapping: our role of a column to its name.
        baseline: the objective that the others are compared with; ``None``: the run's own, for a dump grpo.
        as_json: for machines.
        out: file of a page of it, where one is wanted.
        command: what the user typed, for the page.

    Returns:
        The exit code: 0, or 2 for unusable input.

    Raises:
        RunDirError: the page cannot be written.
    """
    found = _look(lambda: whatif(path, objectives, mapping, baseline), path, as_json=as_json)
    if found is None:
        return UNUSABLE
    if out is not None:
        from lagproof.report import write_whatif  # here: a second that only drawing needs

        write_whatif(found, out, command=command)
    if as_json:
        _print_json(found.to_dict() | ({} if out is None else {"page": str(out)}))
        return 0
    show_whatif(found, Console(highlight=False))
    if out is not None:
        print(out)
    return 0


def show_verdict(found: Diagnosis, console: Console) -> None:
    """Print a verdict: words, alarms, evidence, advice, notes."""
    console.print(Text(wrapped(found.sentence, console), style=f"bold {_STYLE[found.status]}"), "")
    if found.alarms:
        console.print(Text("Alarms", style="bold"))
    for alarm in found.alarms:
        when, how = f"  step {alarm.step:>5}  ", f"{alarm.severity!s:<6}"
        lines = wrapped(f"{when}{how}  {alarm.sentence}", console, len(when) + len(how) + 2)
        console.print(Text.assemble(when, (how, _SEVERITY[alarm.severity]), lines[len(when) + len(how) :]))
    if found.alarms:
        console.print("")
    show_list("Evidence", found.evidence, console)
    show_list("What to try", found.advice, console)
    show_list("Notes", found.notes, console)


def show_whatif(found: WhatIf, console: Console) -> None:
    """Print what other objectives would have done: all tokens, by sign, by age, and what is particular to some."""
    steps = f"{found.steps} step{'s' if found.steps != 1 else ''}"
    say(f"{found.tokens} tokens of {steps}, weighed by each objective. Nothing was trained.\n", console)
    for table in (overall(found), by_sign(found), removed_by_age(found, AGE_COLUMNS)):
        if table is not None:
            tables.show(table, console)
    show_list("In particular", [particular(c) for c in found.comparisons if c.finding is not None], console)
    show_list("Notes", found.notes, console)


def _alarms(overrides: Sequence[str]) -> dict[str, Any]:
    """``alarm.KEY=value``, by KEY.

    Raises:
        ConfigError: of another section.
    """
    out: dict[str, Any] = {}
    for text in overrides:
        name, value = parse_override(text)
        section, _, key = name.partition(".")
        if section != "alarm" or not key:
            raise ConfigError(f"--set {text}: doctor has thresholds only, for example alarm.d_bar=[0.02, 0.05]")
        out[key] = value
    return out


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


def _print_json(tree: Mapping[str, Any]) -> None:
    print(json.dumps(tree, indent=1, allow_nan=False))
