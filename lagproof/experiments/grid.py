"""What a comparison runs: objectives x lags x seeds over one base configuration, read from TOML.

The file holds the keys of a run (``docs``: ``lagproof train --help``) and, at the top, those of :data:`GRID_KEYS`::

    title      = "what it asks"
    objectives = ["grpo", {name = "spo", label = "spo-1", options = {alpha = 1.0}, baseline = "grpo"}]
    lags       = [1, 8, {lag = 4, seeds = [0, 1]}]     # broadcast_every = batches_ahead = lag
    #            or {threshold = 0.5, every = 8}: staleness_threshold, broadcast_every; its name is s0.5n8
    seeds      = [0, 1, 2]                             # of every lag that does not name its own
    baseline   = "grpo"                                # paired differences are taken to it
    steps      = 240
    learner.lr = 1e-4

and the claims it was made to judge, see ``claims.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from lagproof import tasks
from lagproof.config import Config
from lagproof.errors import ConfigError, UnknownNameError
from lagproof.experiments import claims
from lagproof.experiments.claims import Claim
from lagproof.experiments.values import check_keys, check_unique, flat_keys, list_at, seed_list, text_at
from lagproof.runs.lags import LagName, threshold, to_schedule
from lagproof.settings.toml import parse_override, read_toml, set_key

GRID_KEYS = ("title", "command", "objectives", "lags", "seeds", "baseline", "claims")
ENTRY_KEYS = ("name", "label", "options", "baseline")
LAG_KEYS = ("lag", "seeds")
THRESHOLD_KEYS = ("threshold", "every", "seeds")
SET_BY_GRID = {
    "run_dir": "--out",
    "seed": "seeds = [...]",
    "objective": "objectives = [...]",
    "schedule.broadcast_every": "lags = [...]",
    "schedule.batches_ahead": "lags = [...]",
    "schedule.staleness_threshold": "lags = [{threshold = 0.5, every = 8}]",
}
"""Keys of a run that a comparison sets itself, and what to write instead."""


@dataclass(frozen=True)
class GridEntry:
    """One line of a comparison: an objective with its options.

    Attributes:
        label: what tables, curves and directories call it.
        name: its name in the table of objectives.
        options: its options; the others have their defaults.
        baseline: label of the entry that differences are taken to, if any.
    """

    label: str
    name: str
    options: Mapping[str, Any]
    baseline: str | None = None


@dataclass(frozen=True)
class Lag:
    """One schedule, by its name in ``lags.py``, and its seeds."""

    lag: LagName
    seeds: tuple[int, ...]

    def tree(self) -> dict[str, Any]:
        """Plain TOML values."""
        schedule = to_schedule(self.lag)
        named = {"threshold": schedule.get("staleness_threshold"), "every": schedule["broadcast_every"]}
        return ({"lag": self.lag} if isinstance(self.lag, int) else named) | {"seeds": list(self.seeds)}


@dataclass(frozen=True)
class Cell:
    """One run of a comparison."""

    entry: GridEntry
    lag: LagName
    seed: int

    @property
    def name(self) -> str:
        """Its directory under ``cells/``."""
        lag = f"lag{self.lag}" if isinstance(self.lag, int) else self.lag
        return f"{self.entry.label}-{lag}-seed{self.seed}"


@dataclass(frozen=True)
class Grid:
    """Objectives x lags x seeds over one base configuration.

    Attributes:
        name: name of the preset, or of the file without its suffix.
        title: one line for people.
        command: the command that started it, as far as it is known.
        entries: the objectives, in the order of tables and colours.
        lags: the lags with their seeds.
        base: the configuration that all cells share; its run_dir, seed, objective and lag are placeholders.
        claims: what its runs are to show.
    """

    name: str
    title: str
    entries: tuple[GridEntry, ...]
    lags: tuple[Lag, ...]
    base: Config
    command: str | None = None
    claims: tuple[Claim, ...] = ()

    def cells(self) -> list[Cell]:
        """Every run, seed by seed, so that a comparison that is stopped early holds whole sets of pairs."""
        seeds = sorted({seed for lag in self.lags for seed in lag.seeds})
        return [
            Cell(entry, lag.lag, seed)
            for seed in seeds
            for lag in self.lags
            if seed in lag.seeds
            for entry in self.entries
        ]

    def config(self, cell: Cell, run_dir: Path) -> Config:
        """The configuration of one run."""
        tree = self.base.to_dict() | {
            "run_dir": str(run_dir),
            "seed": cell.seed,
            "objective": {**cell.entry.options, "name": cell.entry.name},
        }
        tree["schedule"] = tree["schedule"] | to_schedule(cell.lag)
        return Config(**tree)

    def tree(self) -> dict[str, Any]:
        """Plain TOML values that :func:`from_tree` reads back to an equal grid."""
        base = self.base.to_dict()
        for key in SET_BY_GRID:
            *parents, last = key.split(".")
            section = base
            for parent in parents:
                section = section[parent]
            section.pop(last, None)
        entries = [
            {"name": e.name, "label": e.label, "options": dict(e.options)}
            | ({} if e.baseline is None else {"baseline": e.baseline})
            for e in self.entries
        ]
        lags = [lag.tree() for lag in self.lags]
        command = {} if self.command is None else {"command": self.command}
        judged = {"claims": [claim.tree() for claim in self.claims]} if self.claims else {}
        return {"title": self.title, **command, "lags": lags, "objectives": entries, **base, **judged}

    def to_toml(self) -> str:
        """:meth:`tree` as text."""
        return tomli_w.dumps(self.tree())

    def differences(self, other: Grid) -> list[str]:
        """Keys by which the results of two grids would differ; titles, commands, baselines and claims change no run."""
        ours, theirs = flat_keys(self.tree()), flat_keys(other.tree())
        return sorted(k for k in ours.keys() | theirs.keys() if ours.get(k) != theirs.get(k) and not _cosmetic(k))


def presets() -> list[str]:
    """Names of the comparisons that come with the package."""
    folder = resources.files("lagproof.experiments") / "presets"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))


def load(source: str, overrides: Iterable[str] = (), seeds: Sequence[int] | None = None) -> Grid:
    """Read a preset by its name, or a TOML file.

    Args:
        source: name of a preset, or a path that exists or ends in ``.toml``.
        overrides: ``key=value``, applied to the file's keys in order.
        seeds: replace the seeds of every lag.

    Raises:
        UnknownNameError: no such preset, key, objective, option or task; names the nearest one.
        ConfigError: a file that cannot be read, or a value that is not allowed.
    """
    path = Path(source)
    if path.suffix != ".toml" and not path.is_file():
        if source not in presets():
            raise UnknownNameError("preset", source, presets())
        path = Path(str(resources.files("lagproof.experiments") / "presets" / f"{source}.toml"))
    elif not path.is_file():
        raise ConfigError(f"{source}: no such file; the presets are {', '.join(presets())}")
    tree = read_toml(path)
    for override in overrides:
        key, value = parse_override(override)
        set_key(tree, key, value)
    if seeds is not None:
        tree |= {"seeds": list(seeds), "lags": [_without_seeds(lag) for lag in tree.get("lags", [])]}
    grid = from_tree(tree, path.stem)
    _check_names(grid)
    return grid


def _without_seeds(lag: object) -> object:
    return {k: v for k, v in lag.items() if k != "seeds"} if isinstance(lag, Mapping) else lag


def from_tree(tree: Mapping[str, Any], name: str) -> Grid:
    """A grid from TOML values; see the head of this module for the keys.

    Raises:
        UnknownNameError: an unknown key.
        ConfigError: a value that is not allowed, or a key that the comparison sets itself.
    """
    base = _base(tree)
    seeds = seed_list(tree["seeds"], "seeds") if "seeds" in tree else None
    lags = tuple(_lag(item, f"lags[{i}]", seeds) for i, item in enumerate(list_at(tree, "lags")))
    common = text_at(tree, "baseline")
    entries = tuple(_entry(item, f"objectives[{i}]", common) for i, item in enumerate(list_at(tree, "objectives")))
    check_unique("objectives: label", [entry.label for entry in entries])
    check_unique("lags: lag", [lag.lag for lag in lags])
    labels = [entry.label for entry in entries]
    for entry in entries:
        if entry.baseline is not None and entry.baseline not in labels:
            raise UnknownNameError("baseline", entry.baseline, labels)
    found = tuple(
        claims.parse(item, f"claims[{i}]") for i, item in enumerate(list_at(tree, "claims") if "claims" in tree else [])
    )
    return Grid(name, text_at(tree, "title") or name, entries, lags, base, text_at(tree, "command"), found)


def _base(tree: Mapping[str, Any]) -> Config:
    run_keys = [f.name for f in fields(Config)]
    flat = flat_keys(tree)
    for key, instead in SET_BY_GRID.items():
        if key in tree or key in flat:
            raise ConfigError(f"{key} = {flat.get(key, tree.get(key))!r}: a comparison sets it itself; use {instead}")
    for key in tree:
        if key not in GRID_KEYS and key not in run_keys:
            raise UnknownNameError("key of a comparison", key, [*GRID_KEYS, *run_keys])
    return Config(**{k: v for k, v in tree.items() if k not in GRID_KEYS})


def _entry(item: object, key: str, common_baseline: str | None) -> GridEntry:
    if isinstance(item, str):
        item = {"name": item}
    if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
        raise ConfigError(f"{key} = {item!r}: must be a name, or a table with a name, for example {{name = 'grpo'}}")
    check_keys(item, key, ENTRY_KEYS)
    name, options = item["name"], item.get("options", {})
    label = item.get("label", name)
    if not isinstance(options, Mapping):
        raise ConfigError(f"{key}.options = {options!r}: must be a table, for example {{alpha = 0.5}}")
    if not isinstance(label, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=+-]*", label):
        raise ConfigError(f"{key}.label = {label!r}: must be letters, digits and . _ = + - (it names directories)")
    baseline = text_at(item, "baseline", key) or common_baseline
    return GridEntry(label, name, dict(options), None if baseline == label else baseline)


def _lag(item: object, key: str, common: tuple[int, ...] | None) -> Lag:
    if not isinstance(item, Mapping):
        item = {"lag": item}
    lag = _threshold(item, key) if "threshold" in item else _whole_lag(item, key)
    seeds = seed_list(item["seeds"], f"{key}.seeds") if "seeds" in item else common
    if seeds is None:
        raise ConfigError(f"{key} = {lag}: has no seeds; add seeds = [0] to the comparison or to this lag")
    return Lag(lag, seeds)


def _whole_lag(item: Mapping[str, Any], key: str) -> int:
    check_keys(item, key, LAG_KEYS)
    lag = item.get("lag")
    if type(lag) is not int or lag < 0:
        raise ConfigError(f"{key} = {lag!r}: must be a whole number >= 0; 0 is on-policy")
    return lag


def _threshold(item: Mapping[str, Any], key: str) -> str:
    check_keys(item, key, THRESHOLD_KEYS)
    share, every = item["threshold"], item.get("every")
    if type(share) not in (int, float) or not 0.0 <= share < float("inf"):
        raise ConfigError(
            f"{key}.threshold = {share!r}: must be a number >= 0; 0 is on-policy up to the next broadcast"
        )
    if type(every) is not int or every < 1:
        raise ConfigError(f"{key}.every = {every!r}: must be a whole number >= 1, the steps between two broadcasts")
    return threshold(float(share), every)


def _check_names(grid: Grid) -> None:
    """Fail before the first run, not in it."""
    from lagproof.objectives import objective  # here: reading a finished comparison needs no torch

    for entry in grid.entries:
        objective(entry.name, **entry.options)
    tasks.resolve(grid.base.task.name, grid.base.task.options)


def _cosmetic(key: str) -> bool:
    return key in ("title", "command") or key.endswith(".baseline") or key.startswith("claims")
