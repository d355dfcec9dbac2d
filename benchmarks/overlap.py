"""How well sampling and learning overlap under Ray: steps a minute, who waits, and what a publication costs.

Efficiency is the throughput over that of the slower side alone; each side's own rate is measured in the synchronous
run, where the other waits. Needs two cores that do nothing else, and the extra ray.
"""

from __future__ import annotations

import importlib.util
import pickle
import statistics
import tempfile
from contextlib import closing
from pathlib import Path

from lagproof.config import Config
from lagproof.data.rows import Row
from lagproof.models.loading import load
from lagproof.runs.run import Run
from lagproof.runtime.ray.actors import packed
from lagproof.runtime.ray.cluster import start_local, stop
from lagproof.runtime.train import resolve, train
from lagproof.runtime.watch import Watch
from lagproof.runtime.worker import RolloutWorker
from lagproof.tasks import build

STEPS, WARM = 40, 8
"""Optimiser steps of a run, and those at its start that are not counted."""
BASE = ("runtime=ray", f"steps={STEPS}", "eval.every=0", "save.rollouts=false", "save.every=1000", "rollout.prompts=16")
SCHEDULES = {
    "synchronous": ("schedule.broadcast_every=1", "schedule.batches_ahead=0"),
    "one step off": ("schedule.broadcast_every=1", "schedule.batches_ahead=1"),
    "lag 4": ("schedule.broadcast_every=4", "schedule.batches_ahead=4"),
    "threshold 0.5, every 4": ("schedule.broadcast_every=4", "schedule.staleness_threshold=0.5"),
}


def main() -> None:
    if importlib.util.find_spec("ray") is None:
        print("\noverlap: needs Ray: pip install 'lagproof[ray]'")
        return
    print("\noverlap, one rollout worker and a learner, tiny-dense, 16 prompts x 8 samples x 12 tokens")
    start_local(2)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _report(Path(folder))
    finally:
        stop()
    _bytes()


def _report(folder: Path) -> None:
    print(f"  {'':<24}{'steps/min':>10}{'learner waits':>15}{'sampler waits':>15}{'efficiency':>12}{'age':>7}")
    slower_s = 0.0
    for number, (name, overrides) in enumerate(SCHEDULES.items()):
        path = folder / str(number)
        train(Config.load(None, [*BASE, *overrides, f'run_dir="{path}"']))
        rows = Run.open(path).rows[WARM:]
        step_s = _mean(rows, "time/step_s")
        if name == "synchronous":
            sample_s = _mean(rows, "time/sample_s") + _mean(rows, "time/grade_s")
            learn_s = _mean(rows, "time/learn_s")
            slower_s = max(sample_s, learn_s)
        waits = [_mean(rows, f"time/{side}_wait_s") / step_s for side in ("learner", "rollout")]
        print(
            f"  {name:<24}{60 / step_s:>10.0f}{waits[0]:>15.0%}{waits[1]:>15.0%}{slower_s / step_s:>12.2f}"
            f"{_mean(rows, 'age_mean'):>7.1f}"
        )
        published = [value for row in rows if (value := row.get("time/publish_s"))]
        if name == "synchronous":
            alone = f"  alone: sampling {60 / sample_s:.0f} and learning {60 / learn_s:.0f} batches/min; a publication"
            print(f"{alone} {1e3 * statistics.median(published):.1f} ms")


def _bytes() -> None:
    """What travels: a publication, and a sample with and without log-probabilities."""
    loaded = load("tiny-dense")
    weights = packed(dict(loaded.model.named_parameters()))
    print(f"  a publication: {sum(array.nbytes for _, array in weights.values()):,} bytes")
    for recorded in ("true", "false"):
        config = resolve(Config.load(None, ["objective=spo", f"rollout.record_logp={recorded}"]))
        with closing(build("arithmetic")) as task:
            groups = RolloutWorker.build(config, task, loaded, Watch()).sample(range(16))
        samples = sum(len(group.samples) for group in groups)
        tokens = sum(len(sample.response_ids) for group in groups for sample in group.samples)
        size = sum(len(pickle.dumps(group, protocol=5)) for group in groups)
        print(f"  record_logp = {recorded}: {size / samples:.0f} bytes a sample of {tokens / samples:.1f} tokens")


def _mean(rows: tuple[Row, ...], name: str) -> float:
    return statistics.fmean(row.get(name) or 0.0 for row in rows)


if __name__ == "__main__":
    main()
