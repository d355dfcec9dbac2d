"""A plan as a table, and what follows from it in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from lagproof.data.table import Column, Style, Table, TableRow
from lagproof.runtime.clock.planner import BUSY, MOST_LAG, Capacity, Forecast, Plans

COLUMNS = (
    Column("schedule", align="left", help="k3: weights every step, 3 batches ahead; 4: n = k = 4; s0.5n4; a2n1"),
    Column("tokens/s", format=".4g", help="response tokens trained a second"),
    Column("step s", format=".4g", help="seconds from one optimiser step to the next"),
    Column("learner waits", format=".1%", help="share of the time in which the learner has no batch"),
    Column("slots wait", format=".1%", help="share of the slots' time in which nothing is sampled"),
    Column("age", format=".2f", help="mean age of the prompts trained, by their oldest token, updates"),
    Column("p99", format="d", help="the age that 99 of 100 prompts do not exceed"),
    Column("most", format="d"),
    Column("promise", format="d", help="the age that the schedule promises", detail=True),
    Column("late", format="d", help="prompts trained although they were older", detail=True),
    Column("dropped", format="d", help="prompts dropped because they were older", detail=True),
)


def schedules(found: Plans) -> Table:
    """What each schedule would do."""
    return Table("Schedules", COLUMNS, [[_row(f, found) for f in found.forecasts]], caption=setting(found))


def _row(f: Forecast, found: Plans) -> TableRow:
    values = (
        f.name,
        f.tokens_per_s,
        f.step_s,
        f.learner_wait,
        f.rollout_wait,
        f.mean_age,
        f.quantile(0.99),
        max(f.ages),
        f.promised,
        f.late,
        f.dropped,
    )
    best = found.smallest is not None and f.name == found.smallest.name
    return TableRow(values, Style.GOOD if best else None)


def setting(found: Plans) -> str:
    """What was simulated."""
    h, w = found.hardware, found.work
    flight = ", weights taken in flight" if h.in_flight else ""
    return (
        f"{_many(h.workers, 'engine')} of {_many(h.slots, 'slot')} and {h.engine_tokens_per_s:g} tokens/s, "
        f"{_many(h.learners, 'learner')} of {h.learner_tokens_per_s:g} tokens/s and {h.step_s:g} s a step; publication "
        f"{h.publish_s:g} s{flight}. {w.prompts} prompts of {w.samples} samples per step; {w.lengths.describe()}. "
        f"{w.steps} steps after the pipeline is full, seed {w.seed}."
    )


def advice(found: Plans) -> list[str]:
    """Which side is the slower one, and the smallest lag that keeps the learner busy."""
    c = found.capacity
    first = (
        f"Never waiting, the engines would sample {c.sampling:.4g} tokens/s and the learner train {c.learning:.4g}: "
        f"{'sampling' if c.sampling < c.learning else 'learning'} is the slower side."
    )
    return [first, _smallest(found, c)]


def _smallest(found: Plans, c: Capacity) -> str:
    if (at := found.smallest) is not None:
        fixed, lag = at.name.startswith("k"), int(at.name.removeprefix("k"))
        every = 1 if fixed else max(lag, 1)
        return (
            f"The smallest lag that keeps the learner busy (waiting at most {1 - BUSY:.0%}) is {at.name}: "
            f"schedule.broadcast_every = {every}, schedule.batches_ahead = {lag}; {at.tokens_per_s:.4g} tokens/s, age "
            f"{at.mean_age:.2f} on average, {max(at.ages)} at most."
            + ("" if fixed else " With weights every step no lag does: engines stop too often to take them.")
        )
    if c.sampling < BUSY * c.learning:
        workers = -(-found.hardware.workers * BUSY * c.learning // c.sampling)
        return (
            f"No lag keeps the learner busy: it trains at most {c.sampling / c.learning:.0%} of its time, whatever is "
            f"sampled ahead. With {workers:.0f} engines in the place of {found.hardware.workers} a lag could."
        )
    in_flight = "" if found.hardware.in_flight else "; --in-flight saves the engines that wait"
    return (
        f"No lag up to {MOST_LAG} keeps the learner busy (waiting at most {1 - BUSY:.0%}): engines end what they "
        f"sample before they take weights, and wait for those{in_flight}."
    )


def ages(found: Plans) -> dict[str, Sequence[float]]:
    """Prompts of each schedule by age, from 0 to the largest of all."""
    most = max(max(f.ages) for f in found.forecasts)
    return {f.name: [float(f.ages.get(age, 0)) for age in range(most + 1)] for f in found.forecasts}


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
