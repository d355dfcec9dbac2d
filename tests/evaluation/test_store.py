"""What a folder holds is gone on with only where it is of the same model, settings and problems."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lagproof.data.samples import Finish, Sample
from lagproof.errors import InputError, RunDirError
from lagproof.evaluation.identity import BLOCK_BYTES, BLOCKS, differences, identity
from lagproof.evaluation.run import Opened, Settings, TaskChoice, run_eval
from lagproof.tasks.task import Problem


@contextmanager
def fives(name: str) -> Iterator[Opened]:
    """A model that always says 5."""
    yield Opened(lambda asks, _: [[Sample([1], [1], [0], Finish.STOP, text="5")] for _ in asks], lambda p: [1])


def test_samples_of_one_data_set_are_not_taken_for_those_of_another(tmp_path: Path) -> None:
    data = tmp_path / "x.jsonl"
    choice = TaskChoice("t", "jsonl", {"eval_path": str(data), "label": "t", "prompt": "plain"})

    def evaluate(*rows: tuple[str, str], prompts: int | None = None) -> int:
        lines = [json.dumps({"id": f"p{i}", "problem": q, "answer": a}) for i, (q, a) in enumerate(rows)]
        data.write_text("\n".join(lines))
        found = run_eval(["m"], [choice], Settings(prompts=prompts), tmp_path / "out", fives)
        return len(found.results["t"]["m"].problems)

    first = [("a", "5"), ("b", "6"), ("c", "7")]
    assert evaluate(*first, ("d", "8"), prompts=3) == 3
    file = tmp_path / "out" / "m" / "t" / "settings.json"
    kept = file.read_text()
    for rows, message in (
        ([*first[:2], ("c", "70")], "t/p2 has another right answer;"),
        ([("x", "5"), *first[1:]], "t/p0 has another prompt;"),
        ([("x", "0")], "t/p0 has another prompt and another right answer, t/p1 is gone, t/p2 is gone;"),
    ):
        with pytest.raises(RunDirError, match=f"the data has changed since its problems were asked: {message}"):
            evaluate(*rows)
    assert file.read_text() == kept
    more = [*first, ("d", "8"), ("e", "9")]
    assert [evaluate(*more, prompts=n) for n in (2, 5, 1)] == [2, 5, 1]
    with pytest.raises(
        RunDirError, match=r"t/p0 .*, t/p1 .*, t/p2 [^,]*, and 2 more problems differ; give the same data"
    ):
        evaluate(*[("x", "0")] * 5)


WORDS = TaskChoice("words", "words", {"seed": 1})
PLAIN = replace(WORDS, options={"seed": 2, "prompt": "plain"})


@contextmanager
def only_text(name: str) -> Iterator[Opened]:
    """A model that reads text and no chat messages."""

    def encode(problem: Problem) -> list[int]:
        if not isinstance(problem.prompt, str):
            raise InputError("no chat template")
        return [1]

    yield Opened(lambda asks, _: [[Sample([1], [1], [0], Finish.STOP, text="5")] for _ in asks], encode)


def test_what_failed_before_its_first_sample_does_not_stand_in_the_way(tmp_path: Path) -> None:
    told: list[tuple[object, ...]] = []

    def ask(choice: TaskChoice, **settings: Any) -> int:
        asked = Settings(**{"prompts": 3, **settings})
        found = run_eval(["m"], [choice], asked, tmp_path, only_text, on_progress=lambda *row: told.append(row))
        return len(found.results["words"]["m"].problems)

    with pytest.raises(InputError, match="no chat template"):
        ask(WORDS)
    assert told == []
    assert ask(PLAIN, max_tokens=9) == 3
    with pytest.raises(RunDirError) as caught:
        ask(WORDS)
    assert str(caught.value) == (
        f"{tmp_path}/m/words: holds an evaluation with other settings: "
        'task.prompt = "plain" there, "chat" here; task.seed = 2 there, 1 here; max_tokens = 9 there, 512 here; '
        "give the same ones to resume, or another --out"
    )


def test_the_first_prompt_of_each_task_of_a_mixture_is_tried_before_any_is_asked(tmp_path: Path) -> None:
    parts = [{"name": "words", "prompt": "plain"}, {"name": "words", "label": "chat"}]
    told: list[tuple[object, ...]] = []
    with pytest.raises(InputError, match="no chat template"):
        run_eval(
            ["m"],
            [TaskChoice("mixture", "mixture", {"tasks": parts})],
            Settings(prompts=4),
            tmp_path,
            only_text,
            on_progress=lambda *row: told.append(row),
        )
    assert told == []


def test_fewer_problems_take_nothing_away_from_what_is_stored(tmp_path: Path) -> None:
    def ask(prompts: int) -> tuple[list[str], list[str], int]:
        run_eval(["m"], [PLAIN], Settings(prompts=prompts), tmp_path, only_text)
        folder = tmp_path / "m" / "words"
        table = [json.loads(line)["problem_id"] for line in (folder / "problems.jsonl").read_text().splitlines()]
        samples = pq.read_table(folder / "samples.parquet")["problem_id"].to_pylist()
        counted = json.loads((tmp_path / "result.json").read_text())["results"]["words"]["m"]["problems"]
        return table, samples, counted

    names = [f"words-eval-{i}" for i in range(5)]
    assert ask(5) == (names, names, 5)
    assert ask(2) == (names, names, 2)
    prompts = [
        json.loads(line)["prompt"] for line in (tmp_path / "m" / "words" / "problems.jsonl").read_text().splitlines()
    ]
    assert all(prompt.startswith("Question: ") for prompt in prompts) and len(set(prompts)) == 5
    table = (tmp_path / "m" / "words" / "problems.jsonl").read_text()
    assert ask(5) == (names, names, 5)
    assert (tmp_path / "m" / "words" / "problems.jsonl").read_text() == table


def test_samples_that_lie_in_two_files_count_once(tmp_path: Path) -> None:
    def ask() -> tuple[int, int]:
        found = run_eval(["m"], [PLAIN], Settings(k=2, prompts=3), tmp_path, twice).results["words"]["m"]
        return len(found.lengths), len(pq.read_table(samples))

    @contextmanager
    def twice(name: str) -> Iterator[Opened]:
        said = Sample([1], [1], [0], Finish.STOP, text="5")
        yield Opened(lambda asks, _: [[said] * ask.samples for ask in asks], lambda prompt: [1])

    samples = tmp_path / "m" / "words" / "samples.parquet"
    assert ask() == (6, 6)
    shutil.copy(samples, samples.with_name("part-000000.parquet"))  # killed before the batches were taken away
    assert ask() == (6, 6)
    assert not list(samples.parent.glob("part-*"))


class TestWeights:
    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(bytes(range(256)) * (4 * BLOCKS * BLOCK_BYTES // 256) + b"end")
        return folder

    def of(self, model: Path) -> dict[str, Any]:
        return identity(str(model), WORDS, Settings())

    def test_neither_a_time_nor_a_copy_makes_other_weights(self, model: Path, tmp_path: Path) -> None:
        before, file = self.of(model), model / "model.safetensors"
        os.utime(file, ns=(1, 1))
        assert differences(before, self.of(model)) == []
        copied = tmp_path / "copy"
        shutil.copytree(model, copied)
        shutil.rmtree(model)
        copied.rename(model)
        assert differences(before, self.of(model)) == []

    @pytest.mark.parametrize("at", [0, BLOCK_BYTES - 1, -1, -BLOCK_BYTES])
    def test_other_bytes_of_the_same_size_and_time_do(self, at: int, model: Path) -> None:
        before, file = self.of(model), model / "model.safetensors"
        was = file.stat()
        data = bytearray(file.read_bytes())
        data[at] ^= 1
        file.write_bytes(data)
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
        assert (file.stat().st_size, file.stat().st_mtime_ns) == (was.st_size, was.st_mtime_ns)
        assert differences(before, self.of(model)) == ["weights model.safetensors are other ones"]

    def test_blocks_are_spread_over_the_whole_file(self, model: Path) -> None:
        before, file = self.of(model), model / "model.safetensors"
        data = bytearray(file.read_bytes())
        for tenth in range(10):
            changed = data.copy()
            start = tenth * len(data) // 10
            changed[start : start + len(data) // 10] = bytes(len(data) // 10)
            file.write_bytes(changed)
            assert self.of(model) != before

    def test_all_of_a_small_file_counts(self, model: Path) -> None:
        file = model / "model.safetensors"
        size = BLOCKS * BLOCK_BYTES
        file.write_bytes(bytes(size))
        before = self.of(model)
        for at in range(1, size, size // 20):
            data = bytearray(size)
            data[at] = 1
            file.write_bytes(data)
            assert self.of(model) != before

    def test_another_file_is_named(self, model: Path) -> None:
        before = self.of(model)
        (model / "more.safetensors").write_bytes(b"")
        now = self.of(model)
        assert differences(before, now) == ["weights more.safetensors are only here"]
        assert differences(now, before) == ["weights more.safetensors are only there"]
