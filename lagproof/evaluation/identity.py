"""What samples depend on, so that those of one model, task or data set are not taken for those of another."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lagproof import tasks
from lagproof.errors import InputError
from lagproof.evaluation.choices import TaskChoice
from lagproof.evaluation.settings import Settings
from lagproof.tasks.task import Problem

BLOCKS, BLOCK_BYTES = 64, 64 * 1024
"""What is read of a file of weights: blocks spread evenly over it, its beginning and its end among them."""

Fingerprints = Mapping[str, Mapping[str, str]]
"""By task and id of a problem: digests of its ``prompt`` and its ``gold``."""

_PARTS = {"prompt": "another prompt", "gold": "another right answer"}


def identity(model: str, choice: TaskChoice, settings: Settings) -> dict[str, Any]:
    """Everything that the samples depend on, as plain JSON values; the number of problems and the batch may change.

    Raises:
        InputError: weights that cannot be read.
    """
    sampling = {k: v for k, v in dataclasses.asdict(settings).items() if k not in ("prompts", "batch")}
    options = tasks.resolve(choice.name, choice.options)
    stop = "of the task" if settings.stop is None else settings.stop
    values = {"model": model, "weights": _weights(model), "task": choice.name, "options": options, **sampling}
    return json.loads(json.dumps({**values, "stop": stop}))


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not as it was, in words, one text per value: ``k = 3 there, 2 here``."""
    out: list[str] = []
    for key in dict.fromkeys([*now, *before]):
        was, is_ = before.get(key), now.get(key)
        if key == "options":
            out += _unequal("task.", was or {}, is_ or {})
        elif key == "weights":
            out += _other_weights(was or {}, is_ or {})
        elif was != is_:
            out += _unequal("", {key: was}, {key: is_})
    return out


def fingerprints(problems: Sequence[Problem]) -> dict[str, dict[str, str]]:
    """The fingerprint of each problem, in their order."""
    return {f"{p.task}/{p.id}": {"prompt": _text_digest(p.prompt), "gold": _text_digest(p.gold)} for p in problems}


def changes(before: Fingerprints, now: Fingerprints) -> list[str]:
    """What became of problems that are in ``before``, in words, one text per problem that is gone or another one."""
    out: list[str] = []
    for key, was in before.items():
        found = now.get(key)
        parts = [] if found is None else [text for name, text in _PARTS.items() if found[name] != was[name]]
        if found is None or parts:
            out.append(f"{key} is gone" if found is None else f"{key} has {' and '.join(parts)}")
    return out


def _unequal(prefix: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{prefix}{key} = {_shown(before.get(key))} there, {_shown(now.get(key))} here"
        for key in dict.fromkeys([*now, *before])
        if before.get(key) != now.get(key)
    ]


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _other_weights(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    out: list[str] = []
    for name in sorted({*before, *now}):
        was, is_ = before.get(name), now.get(name)
        if was is None or is_ is None:
            out.append(f"weights {name} are {'only here' if was is None else 'only there'}")
        elif was != is_:
            out.append(f"weights {name} are other ones")
    return out


def _weights(model: str) -> dict[str, tuple[int, str]]:
    """Size and digest of each file of weights in the folder of a model."""
    files = sorted(Path(model).glob("*.safetensors"))
    try:
        return {file.name: (file.stat().st_size, _file_digest(file)) for file in files}
    except OSError as error:
        raise InputError(f"model {model!r}: its weights cannot be read: {error}") from error


def _text_digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=True).encode()).hexdigest()[:16]


def _file_digest(file: Path) -> str:
    out = hashlib.sha256()
    with file.open("rb") as data:
        for offset, length in _blocks(file.stat().st_size):
            data.seek(offset)
            out.update(data.read(length))
    return out.hexdigest()[:32]


def _blocks(size: int) -> Iterator[tuple[int, int]]:
    """Offset and length of what is read of a file: all of a small one."""
    if size <= BLOCKS * BLOCK_BYTES:
        yield 0, size
        return
    for number in range(BLOCKS):
        yield number * (size - BLOCK_BYTES) // (BLOCKS - 1), BLOCK_BYTES
