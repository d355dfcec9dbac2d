"""How a run has ended: in its directory, in a value, and in words."""

from __future__ import annotations

from pathlib import Path

from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.errors import RunStoppedError
from lagproof.runs.run import Run, RunResult
from lagproof.runs.writer import RunWriter
from lagproof.runtime.schedule import Stop


def finished(path: Path) -> RunResult | None:
    """What became of a run that has ended already; one that was aborted raises the same error again."""
    run = Run.open(path)
    if run.aborted is not None and run.result is not None:
        raise RunStoppedError(f"{run.aborted} (run {path}, which has ended after step {run.result.steps})")
    return run.result


def finish(config: Config, writer: RunWriter, stop: Stop) -> RunResult:
    """Say how the run has ended.

    Raises:
        RunStoppedError: it could not continue.
    """
    rows = writer.rows()
    last, steps = rows[-1], rows[-1].step
    evaluated = next((row for row in reversed(rows) if row.get("eval/accuracy") is not None), None)
    metrics = {name: value for name, value in last.flat.items() if name != "outcome"}
    if evaluated is not None:
        metrics |= {key.flat: value for key, value in evaluated.values.items() if key.name.startswith("eval/")}
    reason = str(stop.reason)
    detail = stop.detail + (_why_no_signal(last) if reason == "no_signal" else _why_no_token(last))
    result = RunResult(writer.path, reason, stop.reason.success, steps, metrics, detail)
    writer.finish(result)
    if not result.success:
        raise RunStoppedError(f"{detail} (run {writer.path}, after step {steps} of {config.steps})")
    return result


def _why_no_token(last: Row) -> str:
    """Where not one token of the last batch could be scored."""
    missing = int(last.get("missing_anchor") or 0)
    if last.get("tokens") != 0 or not missing:
        return ""
    return (
        f"; {missing} tokens of the last batch have no anchor and none is left: the weights of the versions that "
        "sampled them are not kept; raise learner.anchor_versions"
    )


def _why_no_signal(last: Row) -> str:
    """What to look at: the right answers where none could be read, else what became of the last batch."""
    samples = int(last.get("samples") or 0)
    if not samples:
        return ""
    if last.get("unscored") == samples:
        return (
            f"; none of the {samples} responses of the last batch got a reward, since the right answers cannot be "
            "read: correct them, or name their column with task.gold_column"
        )
    return (
        f"; of the {samples} responses of the last batch {last.get('truncated') or 0.0:.0%} were truncated, "
        f"{int(last.get('graded/unparsed') or 0)} had no answer that could be read, and the mean reward was "
        f"{last.get('reward') or 0.0:.3f}: raise rollout.max_tokens or rollout.samples, give worked examples "
        "(task.shots), or take problems that this model sometimes solves"
    )
