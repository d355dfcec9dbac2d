"""Files are written whole or not at all, and read back with what is wrong with them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lagproof.errors import RunDirError
from lagproof.runs import files


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    files.write_json({"a": 1}, tmp_path / "x.json")
    files.write_json({"a": 2}, tmp_path / "x.json")
    assert files.read_json(tmp_path / "x.json") == {"a": 2}
    files.write_parquet(pa.table({"a": [1, 2]}), tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").num_rows == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.json", "x.parquet"]


def test_what_fails_half_way_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "x"
    files.write_text("before", file)
    with pytest.raises(ZeroDivisionError), files.replacing(file) as beside:
        beside.write_text("half")
        raise ZeroDivisionError
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]


def test_lines_are_appended_and_read(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    assert files.read_lines(file) == files.JsonLines()
    files.append_lines([{"a": 1}], file)
    files.append_lines([{"a": 2}], file)
    assert files.read_lines(file) == files.JsonLines(((1, {"a": 1}), (2, {"a": 2})))
    files.write_lines([{"a": 3}], file)
    assert files.read_lines(file).objects == ((1, {"a": 3}),)


def test_damaged_lines_are_named(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b'{"a": 1}\n{"a": \xff\n[1]\n\n{"a": 2}')
    found = files.read_lines(file)
    assert found.objects == ((1, {"a": 1}), (5, {"a": 2})) and found.truncated is None
    assert [sentence.partition(" (")[0] for sentence in found.damaged] == [
        "x.jsonl: line 2 is not JSON",
        "x.jsonl: line 3 is not a JSON object",
    ]


def test_what_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "no" / "x"
    said = r"no/x: cannot be written: No such file or directory; give another --out"
    with pytest.raises(RunDirError, match=said), files.writing(file, "give another --out"):
        files.write_text("", file)


@pytest.mark.parametrize("read", [files.read_json, files.read_toml])
def test_what_cannot_be_read_names_the_file(tmp_path: Path, read) -> None:
    for content in (b"[", b"\xff"):
        (tmp_path / "x").write_bytes(content)
        with pytest.raises(RunDirError, match="x: cannot be read"):
            read(tmp_path / "x")
    with pytest.raises(RunDirError, match="gone: cannot be read: No such file"):
        read(tmp_path / "gone")


def test_a_lock_says_who_holds_it_and_dies_with_its_process(tmp_path: Path) -> None:
    code = f"""
import os, sys
from pathlib import Path
from lagproof.runs.files import locked
with locked(Path({str(tmp_path / "lock")!r})):
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    os._exit(1)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    holder = int(process.stdout.readline())
    for _ in range(2):  # asking must not wipe out the answer
        with pytest.raises(RunDirError, match=f"process {holder} is running it"), files.locked(tmp_path / "lock"):
            pass
    process.communicate(b"\n")
    with files.locked(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
