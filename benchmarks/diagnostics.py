"""Every metric of a batch over 1 M tokens (limit: 100 ms on one core), the quantiles at 2^26, a dump of 10 M tokens.

CPU seconds are printed beside the wall's, because they are what a core needs when others share the machine.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import lagproof as lp
from benchmarks.harness import compare
from lagproof.data.distribution import quantiles
from lagproof.data.metrics import values
from lagproof.metrics.balance import balance
from lagproof.metrics.mismatch import Applied, mismatch_metrics
from lagproof.metrics.responses import ages
from lagproof.objectives.reduction import ResponseMean

WANTED = [0.5, 0.9, 0.99, 0.999, 1.0]


def batch(n: int, num_ages: int) -> lp.TokenBatch:
    rng = torch.Generator().manual_seed(0)
    sampler = -3 * torch.rand(n, generator=rng)
    policy = sampler + 0.05 * torch.randn(n, generator=rng)
    num = n // 1000
    response = torch.arange(n) // 1000
    version = 20 - torch.randint(0, num_ages, (num,), generator=rng)[response]
    return lp.TokenBatch(policy, torch.randn(num, generator=rng)[response], response, num, sampler, version=version)


def metrics(tokens: lp.TokenBatch, weighting: lp.Weighting) -> dict[str, float]:
    """What a training step reports of its batch, beyond what the objective does."""
    applied = Applied(weighting.weight, weighting.scorable, ResponseMean(), weighting.counts)
    return values(mismatch_metrics(tokens, 20, applied) | balance(tokens) | ages(tokens, 20))


def of_a_step() -> None:
    grpo = lp.objective("grpo")
    runs = {}
    for num_ages in (1, 8, 16):
        tokens = batch(1_000_000, num_ages)
        weighting = grpo.weigh(tokens)
        if num_ages == 1:
            runs["grpo.weigh, for comparison"] = lambda t=tokens: grpo.weigh(t)
        runs[f"all metrics, {num_ages} ages"] = lambda t=tokens, w=weighting: metrics(t, w)
    compare("all metrics of 1 M tokens", runs)
    run = list(runs.values())[-1]
    began = time.process_time()
    for _ in range(5):
        run()
    print(f"  {'CPU time of the last':<28}{(time.process_time() - began) / 5 * 1e3:>10.2f} ms")


def of_quantiles() -> None:
    x = np.abs(np.random.default_rng(0).standard_normal(1_000_000)).astype(np.float32)
    compare(
        "five quantiles of 1 M values",
        {"numpy.quantile": lambda: np.quantile(x, WANTED), "lagproof": lambda: quantiles([x], WANTED)},
    )
    big = np.resize(x, 1 << 26)
    began = time.perf_counter()
    quantiles([big], WANTED)
    print(f"  {'lagproof, 2^26 values':<28}{(time.perf_counter() - began) * 1e3:>10.2f} ms")


def of_a_dump(num_tokens: int = 10_000_000, length: int = 1000) -> None:
    rng = np.random.default_rng(0)
    policy = (-rng.exponential(0.5, num_tokens) - 0.01).astype(np.float32)
    sampler = np.minimum(policy + 0.05 * rng.standard_normal(num_tokens), -1e-4).astype(np.float32)
    offsets, num = np.arange(0, num_tokens + 1, length), num_tokens // length
    lists = {"policy_logp": policy, "sampler_logp": sampler}
    table = {name: pa.LargeListArray.from_arrays(offsets, x) for name, x in lists.items()}
    table |= {"reward": rng.integers(0, 2, num).astype(float), "group": np.arange(num) // 8}
    table |= {"version": rng.integers(0, 9, num)}
    print("\na dump of 10 M tokens")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dump.parquet"
        pq.write_table(pa.table(table), path)
        for command in ("run_doctor", "run_whatif"):
            code = f"""
import sys
from pathlib import Path
from lagproof.cli.diagnosing import {command}
sys.exit({command}(Path({str(path)!r}), as_json=True))
"""
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            print(
                f"  {command:<28}{time.perf_counter() - began:>10.2f} s, {used.ru_utime - before:.2f} s of CPU, "
                f"at most {used.ru_maxrss / 1e6:.2f} GB so far"
            )


def main() -> None:
    torch.set_num_threads(1)
    of_a_step()
    of_quantiles()
    of_a_dump()
