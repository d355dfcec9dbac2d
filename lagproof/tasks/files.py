"""Rows of a data set: a JSON Lines or parquet file, a folder of them, or a Hugging Face name. Imports no torch."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagproof.errors import DataChoiceError, InputError
from lagproof.grading.rows import SUFFIXES, FileRow, file_rows, first_of_each
from lagproof.models.hub import check_reachable

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_SPLITS = ("train", "validation", "valid", "val", "dev", "eval", "test")
_HOW = "give a .jsonl or .parquet file, a folder of them, or a Hugging Face data set name such as openai/gsm8k"


@dataclass(frozen=True)
class RowSource:
    """Where the rows of one split come from.

    Attributes:
        path: a file, a folder, or a Hugging Face data set name.
        split: which files of a folder, or which split of a data set.
        subset: configuration of a Hugging Face data set.
    """

    path: str
    split: str
    subset: str | None = None


def has_split(source: RowSource) -> bool:
    """Whether a folder or a Hugging Face data set has the split; a file has no splits."""
    path = Path(source.path).expanduser()
    if path.is_dir():
        return bool(_split_files(path, source.split))
    if path.is_file() or not _is_hub_name(source.path):
        return False
    library = _library(source)
    with _fetching(source, library):
        return source.split in library.get_dataset_split_names(source.path, source.subset)


def rows(source: RowSource, unique: Sequence[str] = ()) -> Iterator[FileRow]:
    """Every row, in order.

    Args:
        source: where from.
        unique: path of a column (``("extra_info", "index")``): of the rows with the same value only the first counts.
            In a parquet file the others are never built, so that a hundredfold repetition costs little.

    Raises:
        InputError: nothing there, an unknown kind of file, a line that is not a JSON object, a damaged parquet file,
            or a data set that cannot be fetched.
    """
    path = Path(source.path).expanduser()
    if path.is_dir():
        files = _folder_files(path, source.split)
    elif path.is_file():
        files = [path]
    elif _is_hub_name(source.path):
        yield from first_of_each(_hub_rows(source), unique, set())
        return
    else:
        inside = "" if path.is_absolute() else f" in {Path.cwd()}, where a relative path is looked for"
        raise InputError(f"{source.path}: no such file or folder{inside}; {_HOW}")
    seen: set[Any] = set()
    for file in files:
        yield from file_rows(file, unique, seen)


def _all_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix in SUFFIXES)


def _folder_files(folder: Path, split: str) -> list[Path]:
    """Files of a split; of a folder that names no splits, every file."""
    files = _all_files(folder)
    if not files:
        raise InputError(f"{folder}: no {' or '.join(SUFFIXES)} file in this folder; {_HOW}")
    found = _split_files(folder, split)
    named = [name for name in _SPLITS if _split_files(folder, name)]
    if not found and named:
        raise DataChoiceError(
            f"{folder}: no files of split {split!r}; the folder has {', '.join(named)}", "split", named
        )
    return found or files


def _split_files(folder: Path, split: str) -> list[Path]:
    return [file for file in _all_files(folder) if _belongs(file.relative_to(folder), split)]


def _belongs(file: Path, split: str) -> bool:
    """Whether a file is of a split: by the beginning of its name or a folder above it, else by the rest of its name.

    So ``test-00000-of-00001.parquet``, ``test/1.json`` and ``gsm8k_test.jsonl`` are all of ``test``, and
    ``train/algebra_test.jsonl`` is of ``train`` alone. Of several splits in the rest of a name the last one counts.
    """
    if any(_leads(file, name) for name in (split, *_SPLITS)):
        return _leads(file, split)
    last = {name: _ends(file.stem, name) for name in (*_SPLITS, split)}
    return last[split] > 0 and last[split] == max(last.values())


def _leads(file: Path, split: str) -> bool:
    begins = re.match(rf"{re.escape(split)}(?:[-_.]|$)", file.stem, re.IGNORECASE) is not None
    return begins or split.lower() in (part.lower() for part in file.parts[:-1])


def _ends(stem: str, split: str) -> int:
    """Where the last mention of a split in a name ends, 0 without one."""
    found = re.finditer(rf"(?<=[-_.]){re.escape(split)}(?=[-_.]|$)", stem, re.IGNORECASE)
    return max((match.end() for match in found), default=0)


def _is_hub_name(path: str) -> bool:
    return _HUB_NAME.fullmatch(path) is not None and Path(path).suffix not in SUFFIXES


def _hub_rows(source: RowSource) -> Iterator[FileRow]:
    library = _library(source)
    with _fetching(source, library):
        data = library.load_dataset(source.path, source.subset, split=source.split)
    for number, values in enumerate(data):
        yield FileRow(f"{source.path} ({source.split}), row {number + 1}", values)


def _library(source: RowSource) -> Any:
    if importlib.util.find_spec("datasets") is None:
        raise InputError(
            f"{source.path}: no such file or folder, and fetching a Hugging Face data set of that name needs the "
            "datasets library: pip install 'lagproof[datasets]', or give the path of a .jsonl or .parquet file"
        )
    return importlib.import_module("datasets")


@contextmanager
def _fetching(source: RowSource, library: Any) -> Iterator[None]:
    try:
        if not library.config.HF_HUB_OFFLINE:
            cached = any(Path(library.config.HF_DATASETS_CACHE).glob(f"{source.path.split('/')[0]}___*"))
            check_reachable(library.config.HF_ENDPOINT, cached=cached)
        yield
    except Exception as error:  # the library raises errors of many libraries: network, names, formats
        message = (
            f"data set {source.path!r}, split {source.split!r}: cannot be fetched "
            f"({type(error).__name__}: {str(error)[:300]}); without a network download one of its files elsewhere "
            "and give the path of the .jsonl or .parquet file"
        )
        raise _choice_error(source, library, message) or InputError(message) from error


def _choice_error(source: RowSource, library: Any, message: str) -> DataChoiceError | None:
    """What was chosen that the data set has not; ``None`` where it can be had or its choices cannot be known."""
    try:
        subsets = library.get_dataset_config_names(source.path)
        if source.subset is None and len(subsets) > 1 and "default" not in subsets:
            return DataChoiceError(message, "subset", subsets)
        splits = library.get_dataset_split_names(source.path, source.subset)
    except Exception:  # as above; the error that is reported is the first one
        return None
    return None if source.split in splits else DataChoiceError(message, "split", splits)
