"""Samples of an evaluation, kept batch by batch so that an interrupted one resumes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lagproof.data.samples import Finish
from lagproof.errors import RunDirError
from lagproof.evaluation.identity import Fingerprints, changes, differences, fingerprints
from lagproof.evaluation.result import GradedResponse
from lagproof.runs.evaluation import EvaluationDir
from lagproof.tasks.task import Problem


class Store:
    """The samples of one model on one task.

    Args:
        folder: made if it is not there.
        settings: what the samples depend on, but for the problems; those of a folder without a sample are replaced.
        problems: those that are asked now.
        all_problems: those of the task, at least as many as were asked; called only where fewer are asked now.

    Raises:
        RunDirError: the folder holds an evaluation with other settings or of other problems, or cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        problems: Sequence[Problem],
        all_problems: Callable[[int], Sequence[Problem]],
    ) -> None:
        self._dir = EvaluationDir(folder)
        self._dir.create()
        before = self._dir.settings()
        if before is not None:
            _check_settings(folder, before, settings)
        asked, now = {} if before is None else before["problems"], fingerprints(problems)
        fewer = asked.keys() - now.keys()
        _check_problems(folder, asked, fingerprints(all_problems(len(asked))) if fewer else now)
        kept = {**settings, "problems": {**asked, **now}}
        if kept != before:
            self._dir.write_settings(kept)

    def read(self) -> list[GradedResponse]:
        """Every sample so far, each once: what :meth:`finish` had copied when it was killed may lie in two files.

        Raises:
            RunDirError: a file that cannot be read.
        """
        found = map(_response, self._dir.rows())
        return list({(r.task, r.problem_id, r.sample): r for r in found}.values())

    def append(self, responses: Sequence[GradedResponse]) -> None:
        """Keep a batch: all of it or nothing."""
        self._dir.append([_row(r) for r in responses])

    def finish(self) -> None:
        """Put all batches into one file."""
        self._dir.join([_row(r) for r in self.read()])

    def write_problems(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The table of problems."""
        self._dir.write_problems(rows)


def _check_settings(folder: Path, before: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    found = differences({key: value for key, value in before.items() if key != "problems"}, settings)
    if found:
        raise RunDirError(
            f"{folder}: holds an evaluation with other settings: {'; '.join(found)}; "
            "give the same ones to resume, or another --out"
        )


def _check_problems(folder: Path, asked: Fingerprints, now: Fingerprints) -> None:
    if found := changes(asked, now):
        others = f", and {len(found) - 3} more problems differ" if len(found) > 3 else ""
        raise RunDirError(
            f"{folder}: the data has changed since its problems were asked: {', '.join(found[:3])}{others}; "
            "give the same data to resume, or another --out"
        )


def _row(response: GradedResponse) -> dict[str, Any]:
    return {**vars(response), "reward": None if math.isnan(response.reward) else response.reward}


def _response(row: Mapping[str, Any]) -> GradedResponse:
    reward = math.nan if row["reward"] is None else row["reward"]
    return GradedResponse(**{**row, "reward": reward, "finish": Finish(row["finish"])})
