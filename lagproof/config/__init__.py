"""The configuration of a run: one tree of frozen models, one default per key.

TOML file, then ``--set section.key=value``, then nothing else. A key that does not exist is an error that names the
nearest one. The sections ``[task]`` and ``[objective]`` name an entry of a table; their other keys are the options of
that entry and are checked where the entry is built, so that each option has its default in one place only. So are the
numbers of the optimiser and the thresholds of the alarms: their sections inherit them from the rooms that use them.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import tomli_w

from lagproof.errors import ConfigError
from lagproof.learner.optimization import Optimization
from lagproof.monitor.thresholds import Thresholds
from lagproof.names import AdvantageName, AnchorName, Precision, ReductionName
from lagproof.settings.keys import Setting, key, require
from lagproof.settings.keys import keys as _keys_of
from lagproof.settings.models import FromTable, Named, model, to_dict
from lagproof.settings.toml import parse_override, read_toml, set_key

DEFAULT_TASK, DEFAULT_OBJECTIVE = "arithmetic", "sat-grpo"

_AUTO = "auto (the objective's own)"
_OPTIONS = "the other keys of the section are its options"


@model("schedule")
class ScheduleConfig:
    """Who samples with which version. See ``docs/lag.md``."""

    broadcast_every: int = key(1, "optimiser steps between two weight broadcasts (n)", ge=1)
    batches_ahead: int | None = key(None, "batches that sampling runs ahead of learning (k); absent: equal to n", ge=0)
    staleness_threshold: float | None = key(
        None,
        "instead of batches_ahead: (1 + s) n batches are begun between two broadcasts; 0 is on-policy",
        ge=0,
        allow_inf_nan=False,
        hint=" and finite",
    )
    max_age: int | None = key(
        None, "instead of batches_ahead: versions that a prompt may be behind when it is trained (a), >= n - 1", ge=0
    )
    late: Literal["train", "drop"] = key(
        "train", "max_age: prompts that were overtaken and are older: train: and count them | drop"
    )

    def __post_init__(self) -> None:
        given = [
            f"schedule.{name} = {getattr(self, name)}"
            for name in ("staleness_threshold", "max_age", "batches_ahead")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise ConfigError(
                f"{' and '.join(given)}: exclude each other, both say how far sampling runs ahead; leave one out"
            )
        require(
            self.max_age is None or self.max_age >= self.broadcast_every - 1,
            "schedule.max_age",
            self.max_age,
            f">= schedule.broadcast_every - 1 = {self.broadcast_every - 1}: the step before a "
            "broadcast trains samples of that age, however fresh; raise it or lower broadcast_every",
        )

    @property
    def ahead(self) -> int:
        """``batches_ahead``, or ``broadcast_every`` where it is absent."""
        return self.broadcast_every if self.batches_ahead is None else self.batches_ahead


@model("rollout")
class RolloutConfig:
    """How responses are sampled."""

    prompts: int = key(16, "prompts per step", ge=1)
    samples: int = key(
        8,
        "samples per prompt (the group size)",
        ge=2,
        hint=": the advantage of a response is relative to its group, and a group of one has none",
    )
    max_tokens: int = key(12, "response tokens at most", ge=1)
    temperature: float = key(
        1.0,
        "softmax temperature, > 0",
        gt=0,
        hint=": greedy samples have no log-probability to learn from; for greedy evaluation set eval.temperature = 0",
    )
    top_p: float = key(1.0, "nucleus mass, in (0, 1]; 1 keeps everything", gt=0, le=1)
    top_k: int = key(0, "tokens kept, 0 keeps everything", ge=0, hint="; 0 keeps every token")
    stop: tuple[str, ...] | None = key(
        None, "strings that end a response, in evaluation too; absent: the task's own; []: none", strict=False
    )
    precision: Precision = key("float32", f"weights the engine samples with: {' | '.join(get_args(Precision))}")
    workers: int = key(
        1, "rollout workers; in one process: calls of the engine that prompts are split into, as among workers", ge=1
    )
    in_flight: bool = key(False, "runtime simulated: take new weights between two tokens of responses being sampled")
    recompute_cache: bool = key(
        False, "in_flight: run what is drawn so far again with the new weights; else its keys and values are kept"
    )
    record_logp: bool = key(True, "record the sampler's log-probabilities; false only for objectives that need none")

    def __post_init__(self) -> None:
        require(all(self.stop or ()), "rollout.stop", self.stop, "strings that are not empty; for none use []")


@model("learner")
class LearnerConfig(Optimization):
    """How a batch becomes an optimiser step."""

    advantage: Literal["auto", AdvantageName] = key("auto", f"{_AUTO} | {' | '.join(get_args(AdvantageName))}")
    reduction: Literal["auto", ReductionName] = key("auto", f"{_AUTO} | {' | '.join(get_args(ReductionName))}")
    anchor: Literal["auto", AnchorName] = key(
        "auto", f"auto (sampling_version if the objective reads one) | {' | '.join(get_args(AnchorName))}"
    )
    anchor_versions: int = key(16, "published versions whose weights are kept for the anchor at most", ge=1)
    max_bad_steps: int = key(3, "steps in a row with non-finite gradients before stopping", ge=1)
    max_zero_variance_batches: int = key(8, "batches in a row with zero variance in every group before stopping", ge=1)


@model("eval")
class EvalConfig:
    """Evaluation while training, of one run always on the same problems."""

    every: int = key(10, "steps between two evaluations; 0 never evaluates", ge=0, hint="; 0 never evaluates")
    prompts: int = key(256, "prompts, at most what the task has", ge=1)
    k: int = key(1, "samples per prompt; accuracy is avg@k", ge=1)
    temperature: float = key(1.0, "0 is greedy", ge=0, hint="; 0 is greedy")
    problems: Literal["first", "by_seed"] = key(
        "first", "first: those the task has first; by_seed: drawn anew for each seed, for intervals over seeds"
    )
    where: Literal["workers", "learner"] = key(
        "workers",
        "runtime ray: workers: a rollout worker that has nothing to sample; learner: the learner, which stops",
    )


@model("save")
class SaveConfig:
    """What a run keeps on disk."""

    every: int = key(40, "steps between two checkpoints; the last step is always saved", ge=1)
    keep: int = key(2, "checkpoints kept; older ones are removed", ge=1)
    rollouts: bool = key(True, "write every trained token to rollouts/*.parquet")


@model("probe")
class ProbeConfig:
    """How often a step's mismatch is split into what the policy's updates and what the engine contribute."""

    every: int = key(
        0, "steps between two probes of where the mismatch comes from; 0: none", ge=0, hint="; 0 never probes"
    )
    responses: int = key(64, "responses that a probe scores again at most", ge=1)
    versions: int = key(4, "published versions whose weights are kept for it at most", ge=1)


@model("ray")
class RayConfig:
    """Processes of the runtime ray. See ``docs/ray.md``."""

    address: str | None = key(None, "host:port of a running cluster to join; absent: a local one for this run")
    threads: int = key(1, "threads of each process for matrix products", ge=1)
    call_timeout_s: float = key(600.0, "seconds that a rollout worker may take for one call before it is killed", gt=0)
    start_timeout_s: float = key(120.0, "seconds in which a cluster must answer and a process must be ready", gt=0)
    restarts: int = key(3, "rollout workers that are replaced before the run stops", ge=0)


@model("clock")
class ClockConfig:
    """How long things take under the runtime simulated, in simulated seconds. See ``docs/lag.md``."""

    slots: int | None = key(None, "prompts that a worker samples at once; absent: its share of a step's prompts", ge=1)
    token_s: float = key(1.0, "seconds of one token of every response that a worker samples", gt=0)
    tail: float = key(0.5, "sigma of a log-normal factor with mean 1 on the time of each prompt; 0: length alone", ge=0)
    step_s: float = key(8.0, "seconds of an optimiser step", gt=0)
    train_token_s: float = key(0.0, "seconds more for each response token of the step", ge=0)
    publish_s: float = key(1.0, "seconds until published weights have reached the workers", ge=0)
    jitter: float = key(0.0, "sigma of a log-normal factor with mean 1 on each step and publication", ge=0)


@model("alarm")
class AlarmConfig(Thresholds):
    __doc__ = Thresholds.__doc__


@model("")
class Config:
    """One run, whole."""

    run_dir: str = key("runs/arithmetic", "must not exist, unless --resume")
    seed: int = key(0, "every random stream of the run derives from it", ge=0)
    steps: int = key(240, "optimiser updates", ge=1)
    epochs: int | None = key(None, "times through the data at most; absent: as often as the steps need", ge=1)
    model: str = key("tiny-dense", "tiny-dense | tiny-moe | smollm2 | a folder | a Hugging Face name")
    runtime: Literal["inline", "simulated", "ray"] = key(
        "inline",
        "inline: one process, deterministic | simulated: the same with both sides at work at once, on a clock of its "
        "own | ray: a learner and rollout.workers processes at the same time",
    )
    replay: str | None = key(None, "run directory whose recorded schedule is repeated, in one process")
    task: Annotated[Named, Named.reader(DEFAULT_TASK)] = key(lambda: Named(DEFAULT_TASK), _OPTIONS)
    objective: Annotated[Named, Named.reader(DEFAULT_OBJECTIVE)] = key(lambda: Named(DEFAULT_OBJECTIVE), _OPTIONS)
    schedule: Annotated[ScheduleConfig, FromTable] = key(ScheduleConfig)
    rollout: Annotated[RolloutConfig, FromTable] = key(RolloutConfig)
    learner: Annotated[LearnerConfig, FromTable] = key(LearnerConfig)
    eval: Annotated[EvalConfig, FromTable] = key(EvalConfig)
    save: Annotated[SaveConfig, FromTable] = key(SaveConfig)
    probe: Annotated[ProbeConfig, FromTable] = key(ProbeConfig)
    alarm: Annotated[AlarmConfig, FromTable] = key(AlarmConfig)
    clock: Annotated[ClockConfig, FromTable] = key(ClockConfig)
    ray: Annotated[RayConfig, FromTable] = key(RayConfig)

    def __post_init__(self) -> None:
        require(bool(self.run_dir.strip()), "run_dir", self.run_dir, "a folder that does not exist yet")
        if self.rollout.in_flight:
            require(
                self.runtime == "simulated" and self.replay is None,
                "rollout.in_flight",
                True,
                f"false with runtime = {self.runtime}: weights arrive between two tokens only with runtime = simulated"
                + ("" if self.replay is None else ", which repeats itself without a record"),
            )
        if self.replay is not None:
            require(self.runtime == "inline", "runtime", self.runtime, "inline: a replay runs in one process")

    @classmethod
    def load(cls, path: str | Path | None = None, overrides: Iterable[str] = ()) -> Self:
        """Read a TOML file (or start from the defaults) and apply ``key=value`` overrides in order.

        Raises:
            ConfigError: the file is missing or not TOML, a key is unknown, or a value is not allowed.
        """
        return cls.of_table({} if path is None else read_toml(path), overrides)

    @classmethod
    def of_table(cls, table: Mapping[str, Any], overrides: Iterable[str] = ()) -> Self:
        """The tables of a TOML file with ``key=value`` overrides, in order.

        Raises:
            ConfigError: a key is unknown, or a value is not allowed.
        """
        tree: dict[str, Any] = copy.deepcopy(dict(table))
        for override in overrides:
            name, value = parse_override(override)
            set_key(tree, name, value)
        return cls(**tree)

    def replace(self, **changes: Any) -> Self:
        """The same run with other values; a section given as a dict changes those of its keys alone.

        ``config.replace(seed=1, rollout={"samples": 4}, objective="grpo")``
        """
        tree = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name, value in changes.items():
            if isinstance(value, dict) and dataclasses.is_dataclass(tree.get(name)) and "name" not in value:
                value = to_dict(tree[name]) | value
            tree[name] = value
        return type(self)(**tree)

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain TOML values; absent (``None``) keys are left out."""
        return to_dict(self)

    def save_toml(self, path: str | Path) -> None:
        """Write the tree as TOML that :meth:`load` reads back to an equal tree."""
        Path(path).write_text(tomli_w.dumps(self.to_dict()), encoding="utf-8")


def keys() -> list[Setting]:
    """Every key with its default and its help text, in the order of the tree."""
    return _flat(Config(), "")


def _flat(section: Any, prefix: str) -> list[Setting]:
    rows: list[Setting] = []
    for row in _keys_of(section, prefix):
        if isinstance(row.default, Named):
            rows.append(Setting(f"{row.name}.name", row.default.name, row.help))
        elif dataclasses.is_dataclass(row.default):
            rows.extend(_flat(row.default, f"{row.name}."))
        else:
            rows.append(row)
    return rows
