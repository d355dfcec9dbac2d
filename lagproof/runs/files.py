# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""Files that are written whole or not at all, and read back with what is wrong with them. Imports no torch.

The one place that renames, locks, and says what to do when a disk is full.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lagproof.errors import DiskError, RunDirError

FIX = "make room, or fix its permissions"
"""What to do about a file that cannot be written, where nothing better is known."""

_OF_THE_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
Json = Mapping[str, Any]


@contextlib.contextmanager
def writing(path: Path, advice: str = FIX) -> Iterator[None]:
    """Turn whatever says that the disk is full or closed into one error that says what to do.

    Raises:
        RunDirError: ``path`` cannot be written; with ``advice``. A ``DiskError`` where the disk is full or broken.
    """
    try:
        yield
    except OSError as error:
        kind = DiskError if error.errno in _OF_THE_DISK else RunDirError
        raise kind(f"{path}: cannot be written: {error.strerror or error}; {advice}") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place beside ``path`` to write to, which takes its place at the end: a reader sees all of it or nothing."""
    beside = path.with_name(f".{path.name}.tmp")
    try:
        yield beside
        sync(beside)
        beside.replace(path)
        sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def replace_folder(beside: Path, path: Path) -> None:
    """Let a complete folder take the place of ``path``, which is empty or not there; every file first on the disk.

    Its files get the permissions that the process gives to new ones: some libraries write files for the owner alone.
    """
    probe = beside / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for file in sorted(beside.rglob("*"), reverse=True):
        if file.is_file():
            file.chmod(mode)
        sync(file)
    sync(beside)
    beside.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file or the names in a folder are on the disk: else a power cut may leave a name without content."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(text: str, path: Path) -> None:
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(value: Json, path: Path) -> None:
    write_text(json.dumps(value, indent=1) + "\n", path)


def write_lines(objects: Iterable[Json], path: Path) -> None:
    """JSON Lines."""
    write_text("".join(json.dumps(value) + "\n" for value in objects), path)


def write_parquet(table: Any, path: Path) -> None:
    import pyarrow.parquet as pq

    with replacing(path) as beside:
        pq.write_table(table, beside, compression="zstd")


def append_lines(objects: Iterable[Json], path: Path) -> None:
    """More JSON lines, flushed: a process that is killed leaves at most its last line truncated."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(value) + "\n" for value in objects))


@dataclass(frozen=True)
class JsonLines:
    """What a file of JSON Lines holds.

    Attributes:
        objects: of its lines, each with its number from 1.
        truncated: a sentence about a last line that was being written when its process was killed; else ``None``.
        damaged: a sentence for each other line that is no JSON object.
    """

    objects: tuple[tuple[int, dict[str, Any]], ...] = ()
    truncated: str | None = None
    damaged: tuple[str, ...] = ()


def read_lines(path: Path) -> JsonLines:
    """Read JSON Lines; a missing file has none.

    Raises:
        RunDirError: the file exists and cannot be opened.
    """
    if not path.exists():
        return JsonLines()
    with reading(path):
        lines = path.read_bytes().split(b"\n")
    written = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    objects: list[tuple[int, dict[str, Any]]] = []
    damaged: list[str] = []
    truncated = None
    for number, line in written:
        try:
            value = json.loads(line)
        except ValueError as error:
            if number == written[-1][0]:
                truncated = f"{path.name}: the last line ({number}) is truncated and was left out"
            else:
                damaged.append(f"{path.name}: line {number} is not JSON ({error})")
            continue
        if isinstance(value, dict):
            objects.append((number, value))
        else:
            damaged.append(f"{path.name}: line {number} is not a JSON object")
    return JsonLines(tuple(objects), truncated, tuple(damaged))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object.

    Raises:
        RunDirError: the file cannot be opened, or holds something else.
    """
    with reading(path):
        value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
        raise RunDirError(f"{path}: cannot be read: {type(value).__name__} instead of a JSON object")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        RunDirError: the file cannot be opened, or is not TOML.
    """
    with reading(path):
        return tomllib.loads(path.read_text(encoding="utf-8"))


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what is wrong with a file into one error that names it.

    Raises:
        RunDirError: ``path`` cannot be opened or decoded.
    """
    try:
        yield
    except OSError as error:
        raise RunDirError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # of JSON, TOML and UTF-8
        raise RunDirError(f"{path}: cannot be read: {error}") from error


@contextlib.contextmanager
def locked(path: Path, wait_s: float = 0) -> Iterator[None]:
    """Hold a lock that dies with this process; the file says which process holds it.

    Args:
        path: of the lock.
        wait_s: seconds to wait for another process to give it up.

    Raises:
        RunDirError: another process holds it, or the file cannot be written.
    """
    lock = FileLock(path, timeout=wait_s)
    with writing(path):
        try:
            lock.acquire()
        except Timeout:
            holder = path.read_text(encoding="utf-8").strip() or "(unknown)"
            raise RunDirError(f"{path.parent}: process {holder} is running it; wait for it, or stop it") from None
    try:
        with writing(path):
            path.write_text(f"{os.getpid()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()
