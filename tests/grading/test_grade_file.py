"""Grading a file: JSON Lines in, JSON Lines out."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lagproof.errors import InputError, RunDirError
from lagproof.grading.extract import Form
from lagproof.grading.files import grade_file
from lagproof.grading.pool import Limits


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


def test_every_reason_has_a_row(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "answer": r"\boxed{\frac{1}{2}}", "gold": "0.5"},
        {"id": 2, "answer": r"\boxed{x+x}", "gold": "3x"},
        {"id": 3, "answer": "5", "gold": 5},
        {"id": 4, "answer": r"\boxed{5}", "gold": ""},
        {"id": 5, "answer": None, "gold": "5"},
        {"id": 6, "answer": r"\boxed{\sum_{n=1}^{10^{9}} \sin(n^2)}", "gold": "5"},
    ]
    out = tmp_path / "out.jsonl"
    counts = grade_file(write(tmp_path / "in.jsonl", *rows), out, limits=Limits(time_s=3.0, workers=1))
    graded = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in graded] == [1, 2, 3, 4, 5, 6]
    reasons = ["correct", "wrong", "unparsed", "bad_gold", "unparsed", "timed_out"]
    assert [row["reason"] for row in graded] == reasons
    assert [row["reward"] for row in graded] == [1.0, 0.0, 0.0, None, 0.0, 0.0]
    assert counts == {"correct": 1, "wrong": 1, "unparsed": 2, "bad_gold": 1, "timed_out": 1}


def test_other_columns_another_form_and_a_stream(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", {"r": {"text": "so\n#### 7"}, "label": "7"})
    out, seen = io.StringIO(), []
    grade_file(
        path, out, form=Form.MARKED, answer_column="r.text", gold_column="label", on_progress=lambda n: seen.append(n)
    )
    assert json.loads(out.getvalue())["reward"] == 1.0
    assert seen == [1]


def test_a_dotted_path_leads_into_an_object_written_as_text(tmp_path: Path) -> None:
    """The gold is 7 in both rows; a null on the way is an answer of null."""
    nested = [{"r": {"text": r"\boxed{7}"}, "m": '{"gold": {"value": 7}}'}, {"r": None, "m": {"gold": {"value": "7"}}}]
    out = io.StringIO()
    counts = grade_file(write(tmp_path / "in.jsonl", *nested), out, answer_column="r.text", gold_column="m.gold.value")
    assert counts == {"correct": 1, "unparsed": 1}


def test_a_number_in_a_path_is_a_place_in_a_list(tmp_path: Path) -> None:
    """As samples of lm-evaluation-harness and answers of batch interfaces are laid out; each says 7."""
    message = {"role": "assistant", "content": r"\boxed{7}"}
    rows = [
        {"resps": [[r"\boxed{7}"]], "target": ["7"]},
        {"resps": [[message]], "target": 7},
        {"resps": '[["\\\\boxed{7}"]]', "target": "7"},
    ]
    path = write(tmp_path / "in.jsonl", *rows)
    for column in ("resps", "resps.0", "resps.0.0"):
        assert grade_file(path, io.StringIO(), answer_column=column, gold_column="target")["correct"] >= 2, column
    assert grade_file(path, io.StringIO(), answer_column="resps.0.0", gold_column="target") == {"correct": 3}
    with pytest.raises(InputError, match=r"line 1: no column 'resps\.1'"):
        grade_file(path, io.StringIO(), answer_column="resps.1", gold_column="target")


@pytest.mark.parametrize("held", ["{7}", "7", {"value": "7"}, 7])
def test_a_path_that_leads_nowhere_is_an_error_and_not_a_bad_gold(tmp_path: Path, held: object) -> None:
    path = write(tmp_path / "in.jsonl", {"answer": "7", "m": held})
    with pytest.raises(InputError, match=r"line 1: no column 'm\.gold'; the row has answer, m, and m is .*7"):
        grade_file(path, io.StringIO(), gold_column="m.gold")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_half_a_surrogate_pair_is_graded_and_kept(tmp_path: Path, encoding: str) -> None:
    row = {"answer": "\ud83d é \\boxed{5}", "gold": "5"}
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    grade_file(write(tmp_path / "in.jsonl", row, {"answer": "é", "gold": "1"}), out)
    out.seek(0)
    first, second = out.read().splitlines()
    assert json.loads(first) == {**row, "reward": 1.0, "reason": "correct"}
    assert ("é" in second) == (encoding == "utf-8")


def test_a_number_that_is_not_finite_becomes_null(tmp_path: Path) -> None:
    row = '{"answer": "\\\\boxed{5}", "gold": 5, "x": [NaN, {"y": 1e999}, 2.5]}'
    out = tmp_path / "out.jsonl"
    grade_file(write(tmp_path / "in.jsonl", row), out)
    graded = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert (graded["x"], graded["reason"]) == ([None, {"y": None}, 2.5], "correct")


def test_a_wrong_row_is_named_and_nothing_is_left_behind(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    good = {"answer": "", "gold": "1"}
    for bad, message in (
        ("{", "line 3: not JSON"),
        ('{"answer": ' + "1" * 5000 + ', "gold": "1"}', "line 3: JSON that cannot be read"),
        ("[" * 100_000, "line 3: JSON that cannot be read"),
        ({"answer": "1"}, r"line 3: no column 'gold'; the row has answer"),
        ({"answer": [1, 2], "gold": "1"}, r"line 3: answer is \[1, 2\]"),
    ):
        with pytest.raises(InputError, match=message):
            grade_file(write(tmp_path / "in.jsonl", good, good, bad), out)
    assert [file.name for file in tmp_path.iterdir()] == ["in.jsonl"]
    (tmp_path / "file").touch()
    with pytest.raises(RunDirError, match="cannot be written"):
        grade_file(write(tmp_path / "in.jsonl", good), tmp_path / "file" / "out.jsonl")


def test_what_is_not_one_file_of_rows_is_refused_and_a_new_folder_is_made(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", {"answer": "\\boxed{1}", "gold": "1"})
    with pytest.raises(InputError, match=r"no such file; name a \.jsonl or \.parquet file$"):
        grade_file(tmp_path / "no.jsonl", tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="is a folder; name the file to be written"):
        grade_file(path, tmp_path)
    with pytest.raises(InputError, match="is a folder; name one"):
        grade_file(tmp_path, tmp_path / "out.jsonl")
    with pytest.raises(InputError, match=r"JSON Lines are written, not parquet; name the file \.jsonl"):
        grade_file(path, tmp_path / "out.parquet")
    grade_file(path, tmp_path / "new" / "deep" / "out.jsonl")
    assert json.loads((tmp_path / "new" / "deep" / "out.jsonl").read_text())["reward"] == 1.0


def test_columns_with_dots_in_their_names_and_golds_that_are_nan(tmp_path: Path) -> None:
    rows = [
        {"r.text": "\\boxed{1}", "r": {"text": "\\boxed{2}"}, "gold": 1},
        {"r.text": "\\boxed{1}", "gold": float("nan")},
    ]
    grade_file(write(tmp_path / "in.jsonl", *rows), tmp_path / "out.jsonl", answer_column="r.text")
    graded = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["reason"] for row in graded] == ["correct", "bad_gold"]


def test_grading_and_evaluation_import_no_torch() -> None:
    code = (
        "import sys, lagproof.grading.files, lagproof.evaluation.run; "
        "assert not {'torch', 'transformers', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
