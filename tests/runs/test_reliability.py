"""Directories that are whole or not there, damaged checkpoints, full disks, and what a resumed run refuses."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from lagproof.config import Config
from lagproof.errors import CheckpointError, DiskError, RunDirError
from lagproof.runs import checkpoints, writer
from lagproof.runs.files import write_json, writing
from lagproof.runs.run import Run
from lagproof.runs.writer import RunWriter
from lagproof.runtime.train import train

TINY = {"steps": 4, "rollout": {"prompts": 2, "samples": 2}, "eval": {"every": 0}, "save": {"every": 2, "keep": 2}}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps with checkpoints at 2 and 4."""
    path = tmp_path_factory.mktemp("runs") / "run"
    train({**TINY, "run_dir": str(path)})
    return path


@pytest.fixture
def stopped(done: Path, tmp_path: Path) -> Path:
    """The same run as if it had been killed before it could say that it had ended."""
    import shutil

    path = tmp_path / "run"
    shutil.copytree(done, path)
    (path / "result.json").unlink()
    return path


def resume(path: Path) -> list[str]:
    notes: list[str] = []
    config = Config.of_table(RunWriter.open(path).config() | {"run_dir": str(path)})
    train(config, resume=True, on_note=notes.append)
    return notes


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EACCES])
def test_a_full_disk_is_a_failure_and_a_closed_one_wrong_use(number: int, monkeypatch, capsys) -> None:
    from lagproof import cli

    def failing(*args: object, **kwargs: object) -> None:
        with writing(Path("x")):
            raise OSError(number, "no")

    monkeypatch.setattr(cli, "app", failing)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == (2 if number == errno.EACCES else 1)
    assert "error: x: cannot be written" in capsys.readouterr().err


def test_a_directory_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    def full(text: str, path: Path) -> None:
        raise OSError(errno.EFBIG, "File too large")

    monkeypatch.setattr(writer, "write_text", full)
    with pytest.raises(DiskError):
        RunWriter.create(tmp_path / "run", {"seed": 0}, {"problems": 1})
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    (tmp_path / ".run.tmp").mkdir()  # of a process that was killed
    RunWriter.create(tmp_path / "run", {"seed": 0}, {"problems": 1})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


def test_every_file_of_a_checkpoint_can_be_read_by_those_who_can_read_a_new_file(done: Path, tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    files = [p for p in (done / "checkpoints" / "step-000004").rglob("*") if p.is_file()]
    assert {p.name for p in files} >= {"model.safetensors", "manifest.json"}
    assert {p.stat().st_mode for p in files} == {(tmp_path / "new").stat().st_mode}


def test_what_a_checkpoint_names_is_on_the_disk_before_it(tmp_path: Path, monkeypatch) -> None:
    seen: list[str] = []
    real = checkpoints.replace_folder
    monkeypatch.setattr(checkpoints, "sync", lambda path: seen.append(path.name))
    monkeypatch.setattr(checkpoints, "replace_folder", lambda a, b: (seen.append(b.name), real(a, b)))
    train({**TINY, "steps": 1, "run_dir": str(tmp_path / "run")})
    assert seen == ["metrics.jsonl", "schedule.jsonl", "step-000001"]


@pytest.mark.parametrize("content", [b"null", b"[]", b'{"a": null}', b'{"a": {"bytes": "x"}}', b'{"\xff": 1}', b"{}"])
def test_a_damaged_manifest_is_a_damaged_checkpoint(stopped: Path, content: bytes) -> None:
    newest = stopped / "checkpoints" / "step-000004"
    (newest / checkpoints.MANIFEST).write_bytes(content)
    with pytest.raises(CheckpointError, match="its manifest cannot be read"):
        checkpoints.verify(newest)
    assert any("resuming from step-000002" in note for note in resume(stopped))


@pytest.mark.parametrize("content", ["", "{", '{"reason": "finished"', '{"reason":"a","success":1,"metrics":null}'])
def test_a_damaged_result_is_none(stopped: Path, content: str) -> None:
    (stopped / "result.json").write_text(content)
    assert Run.open(stopped).result is None
    resume(stopped)
    assert json.loads((stopped / "result.json").read_text())["reason"] == "finished"


def test_rows_that_are_fewer_than_the_newest_checkpoint_saw_lead_to_the_one_before(stopped: Path, done: Path) -> None:
    file = stopped / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    notes = resume(stopped)
    assert any("had seen" in note and "resuming from step-000002" in note for note in notes)
    assert [row.step for row in Run.open(stopped).rows] == [row.step for row in Run.open(done).rows]


def test_a_configuration_that_was_edited_by_hand_is_refused_with_its_keys(stopped: Path) -> None:
    file = stopped / "config.toml"
    file.write_text(file.read_text().replace("seed = 0", "seed = 7", 1))
    with pytest.raises(RunDirError, match=r"was edited since step-000004 was written: seed was 0 and is 7"):
        resume(stopped)


def test_how_often_it_saves_may_be_edited(stopped: Path) -> None:
    file = stopped / "config.toml"
    file.write_text(file.read_text().replace("every = 2", "every = 3", 1))
    resume(stopped)


def test_write_json_leaves_no_file_behind(tmp_path: Path) -> None:
    write_json({"a": 1}, tmp_path / "a.json")
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
