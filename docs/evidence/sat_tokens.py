"""Which tokens does SAT reject, and what made them stale? Writes ``sat-tokens.md`` beside it.

    lagproof compare sat
    OMP_NUM_THREADS=1 python docs/evidence/sat_tokens.py [runs/sat]

Takes the responses of the GRPO and GSPO runs that were sampled with a version whose checkpoint is still there,
scores them with that checkpoint, and splits each log-ratio ``d`` into what the policy's updates and what the engine
added. Then asks SAT, with the radii of the comparison, which of these tokens and responses it would have rejected that
its base would not.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor

import lagproof as lp
from lagproof.data.batch import Batch
from lagproof.experiments.comparison import read_comparison
from lagproof.learner.batching import items, micro_batches
from lagproof.models.layout import layout
from lagproof.models.loading import load
from lagproof.models.logprobs import response_logprobs, row_cost
from lagproof.objectives.base import Objective
from lagproof.runs.rollouts import groups as read_groups

LAGS = (1, 8)
PAIRS = (("grpo", "sat-grpo", 0.2), ("gspo", "sat-gspo", 0.1))


@dataclass(frozen=True)
class Scored:
    """One optimiser batch whose sampling version is known.

    Attributes:
        tokens: as the learner saw them.
        then: log pi_v of each token, the training engine at the version that sampled it, ``[N]``.
    """

    tokens: lp.TokenBatch
    then: Tensor


@dataclass(frozen=True)
class Units:
    """Tokens, or responses: what a rule looks at.

    Attributes:
        d, policy: log-ratio and the part of the policy's updates, nats, ``[U]``; the rest is the engine's.
        advantage, mass: ``[U]``; ``mass`` is the gradient mass under the base objective.
        gated: beyond SAT's quantile.
        changed: rejected by SAT and not by its base.
    """

    d: Tensor
    policy: Tensor
    advantage: Tensor
    mass: Tensor
    gated: Tensor
    changed: Tensor


def batches(run: lp.Run) -> Iterator[Scored]:
    """The batches of a run that were sampled with the weights of its oldest checkpoint."""
    checkpoint = run.checkpoints[0]
    version = int(checkpoint.name.removeprefix("step-"))
    loaded = load(checkpoint)
    cost = row_cost(loaded.model)
    table = pa.concat_tables(run.rollouts())
    table = table.filter(pa.array([bool(v) and set(v) == {version} for v in table["version"].to_pylist()]))
    for step in sorted(set(table["step"].to_pylist())):
        part = table.filter(pa.array([row == step for row in table["step"].to_pylist()]))
        rows = sorted(part.to_pylist(), key=lambda row: (row["prompt"], row["sample"]))
        batch = replace(
            Batch.of(sorted(read_groups(part), key=lambda g: g.prompt)),
            policy_logp=torch.tensor([x for row in rows for x in row["policy_logp"]]),
            advantage=torch.tensor([row["advantage"] for row in rows]),
        )
        then = torch.full((batch.num_tokens,), torch.nan)
        for micro in micro_batches(items(batch), 8192, cost):
            with torch.no_grad():
                scored = response_logprobs(loaded.model, layout([[t.sample for t in g] for g in micro], cost))
            then[batch.places([t.index for group in micro for t in group])] = scored.logp
        yield Scored(batch.tokens, then)


def units(batch: Scored, base: Objective, sat: Objective, whole: bool) -> Units:
    """What the two rules look at in a batch: its tokens, or its responses."""
    tokens = batch.tokens
    assert tokens.sampler_logp is not None
    fitted = sat.fit(tokens)
    q = fitted.q  # type: ignore[attr-defined]
    one, other = base.weigh(tokens).weight, fitted.weigh(tokens).weight
    d = tokens.policy_logp.double() - tokens.sampler_logp.double()
    policy = tokens.policy_logp.double() - batch.then.double()
    advantage, mass, changed = tokens.advantage, one.abs().double(), one != other
    if whole:
        count = torch.bincount(tokens.response, minlength=tokens.num_responses).double()

        def summed(x: Tensor) -> Tensor:
            return torch.zeros_like(count).index_add_(0, tokens.response, x.double())

        d, policy, mass = summed(d) / count, summed(policy) / count, summed(mass)
        advantage, changed = summed(advantage) / count, summed(changed.double()) > 0
    return Units(d, policy, advantage, mass, d.abs() > q, changed)


def joined(parts: list[Units]) -> Units:
    return Units(*(torch.cat([getattr(p, name) for p in parts]) for name in Units.__dataclass_fields__))


def line(name: str, u: Units, chosen: Tensor) -> str:
    """One row of the table: of the chosen units, what they are."""
    n = int(chosen.sum())
    if not n:
        return f"| {name} | 0 | - | - | - | - | - |"
    d, policy = u.d[chosen], u.policy[chosen]
    engine = d - policy
    size = float(d.abs().mean())
    from_engine = float((torch.sign(d) * engine).mean()) / size
    larger = float((engine.abs() > policy.abs()).double().mean())
    mass = float(u.mass[chosen].sum() / u.mass.sum())
    good = float((u.advantage[chosen] > 0).double().mean())
    cells = (f"{n} ({n / len(chosen):.1%})", f"{size:.3f}", f"{from_engine:.0%}", f"{larger:.0%}", f"{good:.0%}")
    return f"| {name} | {' | '.join(cells)} | {mass:.1%} |"


def section(title: str, u: Units) -> list[str]:
    outward = u.gated & (u.advantage * u.d > 0)
    return [
        f"## {title}",
        "",
        "| which | number | mean abs d | of it the engine's | engine's part the larger | A > 0 | gradient mass |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        line("all with A != 0", u, u.advantage != 0),
        line("beyond q", u, u.gated & (u.advantage != 0)),
        line("beyond q and moved where A points", u, outward),
        line("rejected by SAT only", u, u.changed),
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", type=Path, nargs="?", default=Path("runs/sat"))
    folder = parser.parse_args().comparison
    torch.set_num_threads(1)
    out = [
        "# Which tokens SAT rejects, and what made them stale",
        "",
        "Made by `python docs/evidence/sat_tokens.py` from the runs of `lagproof compare sat`: the batches",
        "that were sampled with the oldest checkpoint kept of each seed. `d = log pi - log mu` is split into the",
        "policy's updates since the tokens were sampled and the engine (int6 weights, its own expert choices); *of it",
        "the engine's* is the share of mean abs d. A response's `d` is the mean of its tokens'. Gradient mass: share",
        "of that of the base objective.",
        "",
    ]
    for lag in LAGS:
        for name, adaptive, radius in PAIRS:
            base = lp.objective(name, low=radius, high=radius)
            sat = lp.objective(adaptive, low=radius, high=radius, alpha=0.9)
            runs = [run for run in read_comparison(folder).runs if (run.label, run.lag) == (name, lag)]
            parts = [units(batch, base, sat, name == "gspo") for run in runs for batch in batches(run)]
            what = f"{adaptive} on the {'responses' if name == 'gspo' else 'tokens'} of {name}"
            about = f"radius {radius:g}, {len(runs)} seeds, {len(parts)} batches"
            out += section(f"Lag {lag}: {what} ({about})", joined(parts))
    Path(__file__).with_name("sat-tokens.md").write_text("\n".join(out), encoding="utf-8")


if __name__ == "__main__":
    main()
