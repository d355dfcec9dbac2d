# pyright: basic, reportMissingTypeStubs=false
# pyarrow has no types of its own
"""A run's whole state on disk: weights, optimiser, schedule, buffered samples. There is no random state to keep.

::

    step-000040/                       a plain Hugging Face folder: ``AutoModelForCausalLM.from_pretrained`` reads it
    step-000040/run/manifest.json      size and SHA-256 of every file
    step-000040/run/state.json         the schedule, and how much of the rows was written
    step-000040/run/config.toml        the run's configuration, as it was then
    step-000040/run/held.parquet       responses that are sampled and not yet trained, see ``rollouts.py``
    step-000040/run/optimizer.pt
    step-000040/run/sampler.safetensors, kept-000032.safetensors   weights of earlier versions

It is written under another name and renamed when complete; by the manifest one that is truncated or damaged is
noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from torch import Tensor

from lagproof.data.batch import Batch
from lagproof.data.samples import Group
from lagproof.errors import CheckpointError, RunDirError
from lagproof.runs import rollouts
from lagproof.runs.files import read_json, read_toml, replace_folder, sync, write_parquet, writing
from lagproof.runs.layout import RunLayout
from lagproof.runs.writer import KEPT

MANIFEST = "run/manifest.json"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a run needs to resume, besides the weights of the newest version.

    Attributes:
        version: optimiser updates behind the weights.
        schedule: the scheduler's snapshot.
        held: groups that are sampled and not yet trained, by ticket.
        optimizer: state dict of the optimiser.
        sampler: weights of the version that the engines hold, if it is not the newest.
        kept: weights of earlier versions in flight by version, if the run probes them.
        written: bytes of each file that grows by lines, see ``RunWriter.written``.
    """

    version: int
    schedule: Mapping[str, Any]
    held: Mapping[int, Group]
    optimizer: Mapping[str, Any]
    sampler: Mapping[str, Tensor] | None
    kept: Mapping[int, Mapping[str, Tensor]]
    written: Mapping[str, int]


@dataclass(frozen=True)
class SavedProgress:
    """How far a run was when it was saved; see :class:`Checkpoint`."""

    version: int
    schedule: Mapping[str, Any]
    written: Mapping[str, int]


def save(layout: RunLayout, state: Checkpoint, save_model: Callable[[Path], None], keep: int) -> Path:
    """Write the checkpoint of this step, and remove all but the newest ``keep``.

    Args:
        layout: of the run.
        state: all but the newest weights.
        save_model: writes these, with the tokenizer, as a Hugging Face folder.
        keep: checkpoints that stay.

    Raises:
        RunDirError: it could not be written; the checkpoints that exist are untouched.
    """
    path = layout.checkpoint_of(state.version)
    beside = path.with_name(f".{path.name}.tmp")
    with writing(path, KEPT):
        try:
            shutil.rmtree(beside, ignore_errors=True)
            (beside / "run").mkdir(parents=True)
            with _as_os_errors():
                save_model(beside)
                _write_state(beside / "run", state)
            if layout.config.is_file():
                shutil.copyfile(layout.config, beside / "run" / "config.toml")
            _write_manifest(beside)
            for file in (layout.metrics, layout.schedule):  # the checkpoint says how long they are
                if file.exists():
                    sync(file)
            shutil.rmtree(path, ignore_errors=True)
            replace_folder(beside, path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        for surplus in layout.saved()[:-keep]:
            shutil.rmtree(surplus)
    return path


@contextlib.contextmanager
def _as_os_errors() -> Iterator[None]:
    """What safetensors says of a full disk is no ``OSError``."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        raise OSError(str(error)) from error


def verify(path: Path) -> None:
    """Make sure that every file is as it was written.

    Raises:
        CheckpointError: names the checkpoint and the file.
    """
    for name, (num_bytes, sha256) in _read_manifest(path).items():
        file = path / name
        size = file.stat().st_size if file.is_file() else None
        if size != num_bytes:
            raise CheckpointError(f"checkpoint {path}: {name} has {size} bytes, {num_bytes} were written")
        if _sha256(file) != sha256:
            raise CheckpointError(f"checkpoint {path}: {name} is damaged (its SHA-256 is not the one written)")


def _read_manifest(path: Path) -> dict[str, tuple[int, str]]:
    """Size and digest of each file, by its name; the manifest itself may be damaged in any way."""
    try:
        found = read_json(path / MANIFEST)
        manifest = {name: (int(said["bytes"]), str(said["sha256"])) for name, said in found.items()}
        if lacks := [name for name in ("run/state.json", "run/held.parquet") if name not in manifest]:
            raise KeyError(lacks[0])
    except (RunDirError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path}: its manifest cannot be read: {error}") from error
    return manifest


def load_config(path: Path) -> dict[str, Any] | None:
    """The configuration that a checkpoint was written with, as TOML values; ``None`` where it has none."""
    file = path / "run" / "config.toml"
    return read_toml(file) if file.is_file() else None


def load_progress(path: Path) -> SavedProgress:
    """The small part of a checkpoint."""
    state = read_json(path / "run" / "state.json")
    return SavedProgress(state["version"], state["schedule"], state["written"])


def load_state(path: Path) -> Checkpoint:
    """Everything but the newest weights, which are the Hugging Face folder itself."""
    from safetensors.torch import load_file

    run = path / "run"
    state = read_json(run / "state.json")
    sampler = run / "sampler.safetensors"
    groups = {group.prompt: group for group in rollouts.groups(pq.read_table(run / "held.parquet"))}
    return Checkpoint(
        version=state["version"],
        schedule=state["schedule"],
        held={int(ticket): groups[prompt] for ticket, prompt in state["held"].items()},
        optimizer=torch.load(run / "optimizer.pt", weights_only=True),
        sampler=load_file(sampler) if sampler.exists() else None,
        kept={int(file.stem.removeprefix("kept-")): load_file(file) for file in sorted(run.glob("kept-*.safetensors"))},
        written=state["written"],
    )


def _write_state(run: Path, state: Checkpoint) -> None:
    from safetensors.torch import save_file

    buffer = io.BytesIO()  # torch's own writer reports a full disk as a RuntimeError
    torch.save(dict(state.optimizer), buffer)
    (run / "optimizer.pt").write_bytes(buffer.getbuffer())
    write_parquet(rollouts.table(Batch.of(list(state.held.values()))), run / "held.parquet")
    if state.sampler is not None:
        save_file({name: w.contiguous() for name, w in state.sampler.items()}, run / "sampler.safetensors")
    for version, weights in state.kept.items():
        save_file({name: w.contiguous() for name, w in weights.items()}, run / f"kept-{version:06d}.safetensors")
    plain = {
        "version": state.version,
        "schedule": dict(state.schedule),
        "held": {str(ticket): group.prompt for ticket, group in state.held.items()},
        "written": dict(state.written),
    }
    (run / "state.json").write_text(json.dumps(plain), encoding="utf-8")


def _write_manifest(path: Path) -> None:
    files = sorted(p for p in path.rglob("*") if p.is_file())
    manifest = {str(p.relative_to(path)): {"bytes": p.stat().st_size, "sha256": _sha256(p)} for p in files}
    (path / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
