"""The configuration of a run: one frozen dataclass tree, one default per key.

TOML file, then ``--set section.key=value``, then nothing else. A key that does not exist is an error that names the
nearest one. The sections ``[task]`` and ``[objective]`` name an entry of a table; their other keys are the options of
that entry and are checked where the entry is built, so that each option has its default in one place only.
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from lagproof.errors import ConfigError, UnknownNameError

T = TypeVar("T")


@dataclass(frozen=True)
class Named:
    """A section that picks an entry of a table by ``name``; the other keys are that entry's options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ScheduleConfig:
    """Who samples with which version. See ``docs/lag.md``."""

    broadcast_every: int = field(default=1, metadata={"help": "optimiser steps between two weight broadcasts (n)"})
    batches_ahead: int | None = field(
        default=None,
        metadata={"help": "batches that sampling runs ahead of learning (k); absent: equal to n"},
    )
    staleness_threshold: float | None = field(
        default=None,
        metadata={
            "help": "instead of batches_ahead: (1 + s) n batches are begun between two broadcasts; 0 is on-policy"
        },
    )

    def __post_init__(self) -> None:
        _require(self.broadcast_every >= 1, "schedule.broadcast_every", self.broadcast_every, ">= 1")
        _require(self.ahead >= 0, "schedule.batches_ahead", self.batches_ahead, ">= 0")
        s = self.staleness_threshold
        _require(s is None or 0.0 <= s < float("inf"), "schedule.staleness_threshold", s, ">= 0 and finite")
        if s is not None and self.batches_ahead is not None:
            raise ConfigError(
                f"schedule.staleness_threshold = {s} and schedule.batches_ahead = {self.batches_ahead}: exclude each "
                "other, both say how far sampling runs ahead; leave one out"
            )

    @property
    def ahead(self) -> int:
        """``batches_ahead``, or ``broadcast_every`` where it is absent."""
        return self.broadcast_every if self.batches_ahead is None else self.batches_ahead


@dataclass(frozen=True)
class RolloutConfig:
    """How responses are sampled."""

    prompts: int = field(default=16, metadata={"help": "prompts a step"})
    samples: int = field(default=8, metadata={"help": "responses a prompt (the group size)"})
    max_tokens: int = field(default=12, metadata={"help": "response tokens at most"})
    temperature: float = field(default=1.0, metadata={"help": "softmax temperature, > 0"})
    top_p: float = field(default=1.0, metadata={"help": "nucleus mass, in (0, 1]; 1 keeps everything"})
    top_k: int = field(default=0, metadata={"help": "tokens kept, 0 keeps everything"})
    stop: tuple[str, ...] | None = field(
        default=None,
        metadata={"help": "strings that end a response, in evaluation too; absent: the task's own; []: none"},
    )
    precision: str = field(
        default="float32",
        metadata={"help": "weights the engine samples with: float32 | bfloat16 | int8 | int6"},
    )
    record_logp: bool = field(
        default=True,
        metadata={"help": "record the sampler's log-probabilities; false only for objectives that need none"},
    )

    def __post_init__(self) -> None:
        _require(self.prompts >= 1, "rollout.prompts", self.prompts, ">= 1")
        _require(
            self.samples >= 2,
            "rollout.samples",
            self.samples,
            ">= 2: the advantage of a response is relative to its group, and a group of one has none",
        )
        _require(self.max_tokens >= 1, "rollout.max_tokens", self.max_tokens, ">= 1")
        _require(
            self.temperature > 0,
            "rollout.temperature",
            self.temperature,
            "> 0: greedy samples have no log-probability to learn from; for greedy evaluation set eval.temperature = 0",
        )
        _require(0 < self.top_p <= 1, "rollout.top_p", self.top_p, "in (0, 1]")
        _require(self.top_k >= 0, "rollout.top_k", self.top_k, ">= 0; 0 keeps every token")
        _require(all(self.stop or ()), "rollout.stop", self.stop, "strings that are not empty; for none use []")
        allowed = ("float32", "bfloat16", "int8", "int6")
        _require(self.precision in allowed, "rollout.precision", self.precision, " | ".join(allowed))


@dataclass(frozen=True)
class LearnerConfig:
    """How a batch becomes an optimiser step."""

    lr: float = field(default=1e-4, metadata={"help": "AdamW learning rate"})
    betas: tuple[float, float] = field(default=(0.9, 0.95), metadata={"help": "AdamW betas"})
    weight_decay: float = field(default=0.0, metadata={"help": "AdamW weight decay"})
    grad_clip: float = field(default=1.0, metadata={"help": "gradient norm at most; inf for no limit"})
    micro_batch_tokens: int = field(
        default=8192, metadata={"help": "tokens in one forward at most (prompt and padding included)"}
    )
    advantage: str = field(
        default="auto",
        metadata={"help": "auto (the objective's own) | group_norm | group_center | leave_one_out | gpg"},
    )
    reduction: str = field(
        default="auto",
        metadata={"help": "auto (the objective's own) | response_mean | token_mean | constant"},
    )
    max_bad_steps: int = field(default=3, metadata={"help": "steps in a row with non-finite gradients before stopping"})
    max_tied_batches: int = field(
        default=8, metadata={"help": "batches in a row without any signal (every group tied) before stopping"}
    )

    def __post_init__(self) -> None:
        _require(self.lr > 0, "learner.lr", self.lr, "> 0")
        _require(self.grad_clip > 0, "learner.grad_clip", self.grad_clip, "> 0; for no limit use inf")
        _require(self.micro_batch_tokens >= 1, "learner.micro_batch_tokens", self.micro_batch_tokens, ">= 1")
        _require(all(0 <= b < 1 for b in self.betas), "learner.betas", self.betas, "in [0, 1)")
        _require(self.weight_decay >= 0, "learner.weight_decay", self.weight_decay, ">= 0")
        advantages = ("auto", "group_norm", "group_center", "leave_one_out", "gpg")
        _require(self.advantage in advantages, "learner.advantage", self.advantage, " | ".join(advantages))
        reductions = ("auto", "response_mean", "token_mean", "constant")
        _require(self.reduction in reductions, "learner.reduction", self.reduction, " | ".join(reductions))
        _require(self.max_bad_steps >= 1, "learner.max_bad_steps", self.max_bad_steps, ">= 1")
        _require(self.max_tied_batches >= 1, "learner.max_tied_batches", self.max_tied_batches, ">= 1")


@dataclass(frozen=True)
class EvalConfig:
    """Evaluation while training, always on the same prompts."""

    every: int = field(default=10, metadata={"help": "steps between two evaluations; 0 never evaluates"})
    prompts: int = field(default=256, metadata={"help": "prompts, at most what the task has"})
    k: int = field(default=1, metadata={"help": "samples a prompt; accuracy is avg@k"})
    temperature: float = field(default=1.0, metadata={"help": "0 is greedy"})

    def __post_init__(self) -> None:
        _require(self.every >= 0, "eval.every", self.every, ">= 0; 0 never evaluates")
        _require(self.prompts >= 1, "eval.prompts", self.prompts, ">= 1")
        _require(self.k >= 1, "eval.k", self.k, ">= 1")
        _require(self.temperature >= 0, "eval.temperature", self.temperature, ">= 0; 0 is greedy")


@dataclass(frozen=True)
class SaveConfig:
    """What a run keeps on disk."""

    every: int = field(default=40, metadata={"help": "steps between two checkpoints; the last step is always saved"})
    keep: int = field(default=2, metadata={"help": "checkpoints kept; older ones are removed"})
    rollouts: bool = field(default=True, metadata={"help": "write every trained token to rollouts/*.parquet"})

    def __post_init__(self) -> None:
        _require(self.every >= 1, "save.every", self.every, ">= 1")
        _require(self.keep >= 1, "save.keep", self.keep, ">= 1")


@dataclass(frozen=True)
class ProbeConfig:
    """How often a step's mismatch is split into what the policy's updates and what the engine contribute."""

    every: int = field(
        default=0, metadata={"help": "steps between two probes of where the mismatch comes from; 0: none"}
    )
    responses: int = field(default=64, metadata={"help": "responses that a probe scores again at most"})
    versions: int = field(default=4, metadata={"help": "published versions whose weights are kept for it at most"})

    def __post_init__(self) -> None:
        _require(self.every >= 0, "probe.every", self.every, ">= 0; 0 never probes")
        _require(self.responses >= 1, "probe.responses", self.responses, ">= 1")
        _require(self.versions >= 1, "probe.versions", self.versions, ">= 1")


@dataclass(frozen=True)
class AlarmConfig:
    """When a run calls for attention: pairs of a yellow and a red threshold. See ``docs/metrics.md``.

    Each is compared with a mean over the last ``window`` steps, so that no single batch rings. ``inf`` never rings,
    and neither does 0 where an alarm rings below its threshold.
    """

    window: int = field(default=8, metadata={"help": "steps that are averaged before an alarm judges them"})
    d_bar: tuple[float, float] = field(default=(0.15, 0.4), metadata={"help": "mean |log-ratio|, nats: rings above"})
    growth: tuple[float, float] = field(
        default=(3.0, 5.0), metadata={"help": "mean |log-ratio| as a multiple of the run's first: rings above"}
    )
    growth_floor: float = field(default=0.02, metadata={"help": "mean |log-ratio| below which growth means nothing"})
    tail: tuple[float, float] = field(
        default=(4.0, 8.0), metadata={"help": "99.9 % quantile of |log-ratio|, nats: rings above"}
    )
    tail_ratio: float = field(default=20.0, metadata={"help": "that quantile over the median, below which no tail"})
    negative: tuple[float, float] = field(
        default=(5.0, 20.0), metadata={"help": "loss mass of negative over positive responses: rings above"}
    )
    entropy: tuple[float, float] = field(
        default=(0.5, 0.2), metadata={"help": "entropy as a share of the run's first: rings below"}
    )
    length: tuple[float, float] = field(
        default=(1.5, 2.5), metadata={"help": "response length as a multiple of the run's first: rings above"}
    )
    truncated: tuple[float, float] = field(
        default=(0.3, 0.8), metadata={"help": "share of responses cut off at max_tokens: rings above"}
    )
    reward: tuple[float, float] = field(default=(0.75, 0.5), metadata={"help": "reward over its peak: rings below"})
    clipped: tuple[float, float] = field(
        default=(0.25, 0.75), metadata={"help": "share of tokens that the trust region rejects: rings above"}
    )
    ess: tuple[float, float] = field(
        default=(0.6, 0.2), metadata={"help": "effective sample size of the ratios, a share: rings below"}
    )
    waiting: tuple[float, float] = field(
        default=(0.5, 0.9), metadata={"help": "share of its time that a side waits for the other: rings above"}
    )

    def __post_init__(self) -> None:
        _require(self.window >= 1, "alarm.window", self.window, ">= 1")
        for name in ("growth_floor", "tail_ratio"):
            _require(getattr(self, name) >= 0, f"alarm.{name}", getattr(self, name), ">= 0")
        for name in ("d_bar", "growth", "tail", "negative", "length", "truncated", "clipped", "waiting"):
            yellow, red = getattr(self, name)
            allowed = "a yellow threshold > 0 and a red one that is not below it; inf never rings"
            _require(0 < yellow <= red, f"alarm.{name}", [yellow, red], allowed)
        for name in ("entropy", "reward", "ess"):
            yellow, red = getattr(self, name)
            allowed = "shares: a yellow threshold <= 1 and a red one >= 0 that is not above it; 0 never rings"
            _require(0 <= red <= yellow <= 1, f"alarm.{name}", [yellow, red], allowed)


@dataclass(frozen=True)
class Config:
    """One run, whole."""

    run_dir: str = field(default="runs/arithmetic", metadata={"help": "must not exist, unless --resume"})
    seed: int = field(default=0, metadata={"help": "every random stream of the run derives from it"})
    steps: int = field(default=240, metadata={"help": "optimiser updates"})
    epochs: int | None = field(
        default=None, metadata={"help": "times through the data at most; absent: as often as the steps need"}
    )
    model: str = field(
        default="tiny-dense",
        metadata={"help": "tiny-dense | tiny-moe | smollm2 | a folder | a Hugging Face name"},
    )
    runtime: str = field(default="inline", metadata={"help": "inline: one process, deterministic"})
    task: Named = field(default_factory=lambda: Named("arithmetic"))
    objective: Named = field(default_factory=lambda: Named("sat-grpo"))
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    alarm: AlarmConfig = field(default_factory=AlarmConfig)

    def __post_init__(self) -> None:
        _require(self.steps >= 1, "steps", self.steps, ">= 1")
        _require(self.epochs is None or self.epochs >= 1, "epochs", self.epochs, ">= 1")
        _require(self.seed >= 0, "seed", self.seed, ">= 0")
        _require(self.runtime == "inline", "runtime", self.runtime, "inline")
        _require(bool(self.run_dir.strip()), "run_dir", self.run_dir, "a folder that does not exist yet")

    @classmethod
    def load(cls, path: str | Path | None = None, overrides: Iterable[str] = ()) -> Config:
        """Read a TOML file (or start from the defaults) and apply ``key=value`` overrides in order.

        Raises:
            ConfigError: the file is missing or not TOML, a key is unknown, or a value is not allowed.
        """
        tree: dict[str, Any] = {} if path is None else read_toml(path)
        for override in overrides:
            key, value = parse_override(override)
            set_key(tree, key, value)
        return from_dict(cls, tree)

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain TOML values; absent (``None``) keys are left out."""
        return to_dict(self)

    def save_toml(self, path: str | Path) -> None:
        """Write the tree as TOML that :meth:`load` reads back to an equal tree."""
        Path(path).write_text(tomli_w.dumps(self.to_dict()), encoding="utf-8")


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as a dict, with errors that name the file and the line."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; with no file at all the embedded default is used") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error


def parse_override(text: str) -> tuple[str, Any]:
    """``a.b=value``: the value is read as TOML where it is TOML, and is text otherwise."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--set {text!r}: expected key=value, for example --set objective.name=grpo")
    try:
        return key.strip(), tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def set_key(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Set ``a.b.c`` in nested dicts, in place."""
    *parents, last = dotted.split(".")
    for parent in parents:
        child = tree.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {dotted}: {parent!r} is a value, not a section")
        tree = child
    tree[last] = value


def from_dict(cls: type[T], tree: Mapping[str, Any], prefix: str = "") -> T:
    """A dataclass from nested dicts: unknown keys and wrong types are errors that name the key."""
    fields = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in fields:
            raise UnknownNameError("configuration key", prefix + key, [prefix + name for name in fields])
        if hints[key] is Named and isinstance(value, Mapping):
            value = {"name": getattr(cls(), key).name, **value}
        values[key] = _convert(hints[key], value, prefix + key)
    return cls(**values)


def to_dict(section: Any) -> dict[str, Any]:
    """The inverse of :func:`from_dict`; ``None`` has no TOML value and is left out."""
    if isinstance(section, Named):
        return {"name": section.name, **{k: v for k, v in section.options.items() if v is not None}}
    out: dict[str, Any] = {}
    for f in dataclasses.fields(section):
        value = getattr(section, f.name)
        if dataclasses.is_dataclass(value):
            out[f.name] = to_dict(value)
        elif value is not None:
            out[f.name] = list(value) if isinstance(value, tuple) else value
    return out


def keys(cls: type = Config, prefix: str = "") -> list[tuple[str, Any, str]]:
    """Every key with its default and its help text, in the order of the tree."""
    rows: list[tuple[str, Any, str]] = []
    hints = typing.get_type_hints(cls)
    defaults = cls()
    for f in dataclasses.fields(cls):
        value = getattr(defaults, f.name)
        if isinstance(value, Named):
            rows.append((f"{prefix}{f.name}.name", value.name, "the other keys of the section are its options"))
        elif dataclasses.is_dataclass(hints[f.name]):
            rows.extend(keys(hints[f.name], f"{prefix}{f.name}."))
        else:
            rows.append((prefix + f.name, value, f.metadata.get("help", "")))
    return rows


def _convert(hint: Any, value: Any, key: str) -> Any:
    if hint is Named:
        return _named(value, key)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key} = {value!r}: is a section, not a value; set {key}.<key> instead")
        return from_dict(hint, value, f"{key}.")  # type: ignore[arg-type]
    if typing.get_origin(hint) is types.UnionType:
        (hint,) = (a for a in typing.get_args(hint) if a is not type(None))
    if typing.get_origin(hint) is tuple:
        items = typing.get_args(hint)
        if items[1:] == (...,):
            if not isinstance(value, list | tuple):
                raise ConfigError(f"{key} = {value!r}: expected a list, got {type(value).__name__}")
            return tuple(_convert(items[0], v, key) for v in value)
        if not isinstance(value, list | tuple) or len(value) != len(items):
            raise ConfigError(f"{key} = {value!r}: expected a list of {len(items)} numbers")
        return tuple(_convert(h, v, key) for h, v in zip(items, value, strict=True))
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ConfigError(f"{key} = {value!r}: expected {hint.__name__}, got {type(value).__name__}")
    return value


def _named(value: Any, key: str) -> Named:
    if isinstance(value, str):
        return Named(value)
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise ConfigError(f"{key} = {value!r}: expected a section with a name, for example {key}.name=...")
    return Named(value["name"], {k: v for k, v in value.items() if k != "name"})


def _require(ok: bool, key: str, got: object, allowed: str) -> None:
    if not ok:
        raise ConfigError(f"{key} = {got!r}: must be {allowed}")
