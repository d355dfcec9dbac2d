"""What samples depend on, so that those of one model or task are not taken for those of another."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lagproof import tasks
from lagproof.errors import InputError
from lagproof.evaluation.choices import Settings, TaskChoice

BLOCKS, BLOCK_BYTES = 64, 64 * 1024
"""What is read of a file of weights: blocks spread evenly over it, its beginning and its end among them."""


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
    """What is not as it was, in words, one text a value: ``k = 3 there, 2 here``."""
    out: list[str] = []
    for key in dict.fromkeys([*now, *before]):
        was, is_ = before.get(key), now.get(key)
        if key == "options":
            out += _unequal("task.", was or {}, is_ or {})
        elif key == "weights":
            out += _other_weights(Path(now["model"]), was or {}, is_ or {})
        elif was != is_:
            out += _unequal("", {key: was}, {key: is_})
    return out


def _unequal(prefix: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"{prefix}{key} = {_shown(before.get(key))} there, {_shown(now.get(key))} here"
        for key in dict.fromkeys([*now, *before])
        if before.get(key) != now.get(key)
    ]


def _shown(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _other_weights(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    out: list[str] = []
    for name in sorted({*before, *now}):
        was, is_ = before.get(name), now.get(name)
        if was is None or is_ is None:
            out.append(f"weights {name} are {'only here' if was is None else 'only there'}")
        elif was != is_ and not _has_time(folder / name, was):
            by_time = isinstance(was[1], int) and was[0] == is_[0]
            how = "were written at another time, and no digest was kept of them" if by_time else "are other ones"
            out.append(f"weights {name} {how}")
    return out


def _has_time(file: Path, was: list[Any]) -> bool:
    """Whether a file is the one of which only the size and the time were kept, as was done before digests were."""
    found = file.stat()
    return was == [found.st_size, found.st_mtime_ns]


def _weights(model: str) -> dict[str, tuple[int, str]]:
    """Size and digest of each file of weights in the folder of a model."""
    files = sorted(Path(model).glob("*.safetensors"))
    try:
        return {file.name: (file.stat().st_size, _digest(file)) for file in files}
    except OSError as error:
        raise InputError(f"model {model!r}: its weights cannot be read: {error}") from error


def _digest(file: Path) -> str:
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
