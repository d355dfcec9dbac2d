"""Data sets as they are published: schemas, splits, prompts, and files that are wrong."""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lagproof import tasks
from lagproof.errors import ConfigError, DataChoiceError, InputError, UnknownNameError
from lagproof.tasks.prompts import Prompting
from lagproof.tasks.task import Answer, Task

DATA = Path(__file__).parents[3] / "shared" / "data"


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def plain(n: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"id": f"p{i}", "problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(start, start + n)]


def question(task: Task, index: int = 0) -> str:
    prompt = task.problem(index).prompt
    return prompt if isinstance(prompt, str) else prompt[-1]["content"]


def test_gsm8k(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [{"question": "How many legs have 2 cats?", "answer": "2*4=<<2*4=8>>8\n#### 8"}])
    write(tmp_path / "test.jsonl", [{"question": "And 250 cats?", "answer": "250*4=1000\n#### 1,000"}])
    task = tasks.build("gsm8k", {"path": str(tmp_path)})
    assert (task.size, task.eval_size) == (1, 1)
    assert (task.problem(0).gold, task.eval_problem(0).gold) == ("8", "1,000")
    assert task.grade([Answer(task.eval_problem(0), "\\boxed{1000}")])[0].reward == 1.0


def test_rows_whose_answer_is_a_word_for_none_are_no_problems(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A quarter of one published data set has "proof" or "notfound" for its answer."""
    rows = plain(6)
    for number, word in ((1, "proof"), (3, "notfound"), (4, "N/A")):
        rows[number]["answer"] = word
    file = write(tmp_path / "a.jsonl", rows)
    task = tasks.build("math", {"path": file, "held_out": 0.0})
    assert [task.problem(i).gold for i in range(task.size or 0)] == ["1", "3", "6"]
    assert "3 of 6 problems are left out" in caplog.text and "line 2" in caplog.text


def test_a_gold_is_what_the_list_or_the_escapes_around_it_hold(tmp_path: Path) -> None:
    rows = plain(4)
    for row, answer in zip(rows, (r'["5 \\text{ cm}"]', ["7"], r"\\frac{1}{2}", [["8"]]), strict=True):
        row["answer"] = answer
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    task = tasks.build("math", {"path": str(tmp_path / "a.jsonl"), "held_out": 0.0})
    assert [task.problem(i).gold for i in range(4)] == [r"5 \text{ cm}", "7", r"\frac{1}{2}", "8"]


def test_math_takes_the_gold_from_the_last_box_of_a_solution(tmp_path: Path) -> None:
    solution = r"First \boxed{1}, then $\boxed{\frac{1}{2}}$."
    path = write(tmp_path / "a.jsonl", [{"problem": "?", "solution": solution, "level": "Level 1"}])
    task = tasks.build("math", {"path": path, "held_out": 0.0})
    assert (task.problem(0).id, task.problem(0).gold) == ("math-0", r"\frac{1}{2}")


def test_math_one_problem_a_file_below_folders_of_the_splits(tmp_path: Path) -> None:
    for split, gold in (("train", 1), ("test", 2)):
        file = tmp_path / split / "algebra" / "1.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"problem": "?", "solution": rf"\boxed{{{gold}}}"}))
    task = tasks.build("math", {"path": str(tmp_path)})
    assert (task.problem(0).gold, task.eval_problem(0).gold) == ("1", "2")


def test_math_without_a_path_makes_word_problems() -> None:
    task = tasks.build("math", {"prompt": "plain"})
    assert task.size is None
    assert (task.name, task.problem(0).task) == ("math", "math")


def dapo(index: str, gold: str) -> dict[str, Any]:
    content = f'Solve it. The last line is Answer: $Answer.\n\nWhat is {gold}?\n\nEnd with a line after "Answer:".'
    return {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": content}],
        "ability": "MATH",
        "reward_model": {"ground_truth": gold, "style": "rule"},
        "extra_info": {"index": index},
    }


@pytest.mark.parametrize("file", ["dapo.parquet", "dapo.jsonl"])
def test_dapo_is_loaded_once_by_index_and_not_asked_twice(tmp_path: Path, file: str) -> None:
    rows = [dapo("a", "34"), dapo("b", "7")] * 100 + [dapo("c", "8")]
    task = tasks.build("dapo-math-17k", {"path": write(tmp_path / file, rows), "held_out": 0.0})
    assert task.size == 3
    assert [task.problem(i).id for i in range(3)] == ["a", "b", "c"]
    assert question(task) == rows[0]["prompt"][0]["content"]
    assert task.grade([Answer(task.problem(0), "So.\n\nAnswer: 34")])[0].reward == 1.0
    boxed = tasks.build(
        "dapo-math-17k", {"path": str(tmp_path / file), "answer_form": "boxed", "instruction": "Box it."}
    )
    assert question(boxed).endswith("Box it.")


def test_dapo_without_an_index_is_read_once_by_another_column(tmp_path: Path) -> None:
    rows = [{k: v for k, v in dapo("", gold).items() if k != "extra_info"} | {"key": gold} for gold in ("34", "7")] * 3
    path = write(tmp_path / "dapo.parquet", rows)
    with pytest.raises(InputError, match=r"row 1: no id column 'extra_info\.index'; .* key; set task\.id_column"):
        tasks.build("dapo-math-17k", {"path": path})
    task = tasks.build("dapo-math-17k", {"path": path, "id_column": "key", "held_out": 0.0})
    assert [task.problem(i).id for i in range(task.size or 0)] == ["34", "7"]


def test_columns_inside_an_object_written_as_text(tmp_path: Path) -> None:
    row = dapo("a", "34")
    texts = {**row, "reward_model": json.dumps(row["reward_model"]), "extra_info": json.dumps(row["extra_info"])}
    for file in ("x.parquet", "x.jsonl"):
        task = tasks.build("dapo-math-17k", {"path": write(tmp_path / file, [texts, texts]), "held_out": 0.0})
        assert (task.size, task.problem(0).id, task.problem(0).gold) == (1, "a", "34")


def test_a_file_of_another_schema_is_read_or_named(tmp_path: Path) -> None:
    solved = write(tmp_path / "a.jsonl", [{"question": "2 cats?", "answer": "2*4=8\n#### 8"}])
    assert tasks.build("jsonl", {"eval_path": solved}).eval_problem(0).gold == "8"
    other = write(tmp_path / "b.jsonl", [dapo("a", "34")])
    for name in ("jsonl", "gsm8k"):
        with pytest.raises(InputError, match=r"or name the task 'dapo-math-17k', whose columns these are"):
            tasks.build(name, {"eval_path": other})
    with pytest.raises(InputError, match=r"set task\.gold_column$"):
        tasks.build("jsonl", {"eval_path": other, "gold_column": "gold"})


def test_a_solution_with_hashes_is_no_right_answer_of_mathematics(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"question": "?", "answer": "1 + 1 = 2\n#### 2"}])
    with pytest.raises(InputError, match=r"line 1: the right answer is a whole solution with '####'.*'gsm8k'.*'jsonl'"):
        tasks.build("math", {"path": path})
    other = write(tmp_path / "y.jsonl", [{"problem": "?", "answer": "2"}])
    with pytest.raises(InputError, match=r"line 1: no question column.*name the task 'jsonl'"):
        tasks.build("gsm8k", {"path": other})


def test_messages_in_parts(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "1 + 1?"}]
    path = write(tmp_path / "x.jsonl", [{"messages": [{"role": "user", "content": parts}], "ground_truth": "2"}])
    task = tasks.build("dolci-rl-zero-math", {"path": path, "held_out": 0.0, "instruction": ""})
    assert task.problem(0).prompt == [{"role": "user", "content": "What is 1 + 1?"}]


def test_data_that_were_read_have_a_digest_and_made_ones_have_none(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    first = tasks.build("jsonl", {"path": write(path, plain(10))}).data
    assert first is not None and (first["problems"], first["evaluated"]) == (9, 1)
    assert tasks.build("jsonl", {"path": str(path)}).data == first
    for key in ("id", "problem", "answer"):
        rows = plain(10)
        rows[3][key] = "other"
        assert tasks.build("jsonl", {"path": write(path, rows)}).data != first, key
    assert tasks.build("words").data is None and tasks.build("arithmetic").data is None
    mixed = tasks.build("mixture", {"tasks": [{"name": "words"}, {"name": "jsonl", "path": write(path, plain(10))}]})
    assert mixed.data == {"jsonl": first}


def test_dolci(tmp_path: Path) -> None:
    row = {
        "prompt": "What is 2 + 2?",
        "ground_truth": "4",
        "messages": [{"role": "user", "content": "What is 2 + 2? Put it in \\boxed{}."}],
        "dataset": "x",
    }
    path = write(tmp_path / "train-00000-of-00001.parquet", [row])
    task = tasks.build("dolci-rl-zero-math", {"path": path, "held_out": 0.0})
    assert question(task) == "What is 2 + 2? Put it in \\boxed{}."
    assert task.problem(0).gold == "4"


def test_a_column_map_reads_any_file(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", [{"q": "?", "meta": {"gold": 5, "key": "k1"}}])
    options = {"path": path, "question_column": "q", "gold_column": "meta.gold", "id_column": "meta.key"}
    problem = tasks.build("parquet", {**options, "held_out": 0.0}).problem(0)
    assert (problem.id, problem.gold) == ("k1", "5")


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("gsm8k_train.jsonl", "gsm8k_test.jsonl"),
        ("gsm8k-train.jsonl", "gsm8k-test.jsonl"),
        ("Train.jsonl", "Test.jsonl"),
        ("gsm8k.train-0.jsonl", "gsm8k.test-0.jsonl"),
        ("train/algebra_test.jsonl", "test/algebra_train.jsonl"),
        ("a_test_train.jsonl", "a_train_test.jsonl"),
        ("train_of_test.jsonl", "test_of_train.jsonl"),
    ],
)
def test_training_takes_no_problem_of_the_test_file(tmp_path: Path, train: str, test: str) -> None:
    write(tmp_path / train, plain(3))
    write(tmp_path / test, plain(2, start=10))
    write(tmp_path / "a_val.jsonl", plain(4, start=20))
    task = tasks.build("jsonl", {"path": str(tmp_path)})
    assert [task.problem(i).id for i in range(task.size or 0)] == ["p0", "p1", "p2"]
    assert [task.eval_problem(i).id for i in range(task.eval_size or 0)] == ["p10", "p11"]


def test_one_file_is_split_and_nothing_is_in_both(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", plain(50))
    task = tasks.build("jsonl", {"path": path})
    assert (task.size, task.eval_size) == (45, 5)
    ids = [task.problem(i).id for i in range(45)] + [task.eval_problem(i).id for i in range(5)]
    assert len(set(ids)) == 50
    assert tasks.build("jsonl", {"path": path}).eval_problem(2) == task.eval_problem(2)
    both = tasks.build("jsonl", {"path": path, "held_out": 0.0})
    assert (both.size, both.eval_size) == (50, 50)


def test_what_is_held_out_is_said_once_with_its_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A tenth of 15, rounded up."""
    path, one = write(tmp_path / "x.jsonl", plain(15)), write(tmp_path / "one.jsonl", plain(1))
    tasks.build("jsonl", {"path": path})
    said = (
        f"{path}: has no split 'test': 2 of its 15 problems are evaluated on and not trained on (task.held_out = 0.1)"
    )
    assert [r.message for r in caplog.records] == [said]
    tasks.build("jsonl", {"path": one})
    assert caplog.records[1].message.endswith("one problem, which is both trained on and evaluated on")
    tasks.build("jsonl", {"path": path, "held_out": 0.0})
    tasks.build("jsonl", {"path": path, "eval_path": path})
    assert len(caplog.records) == 2


def test_an_evaluation_file_of_its_own(tmp_path: Path) -> None:
    path, other = write(tmp_path / "a.jsonl", plain(4)), write(tmp_path / "b.jsonl", plain(3, start=10))
    task = tasks.build("jsonl", {"path": path, "eval_path": other})
    assert (task.size, task.eval_size) == (4, 3)
    only = tasks.build("aime", {"eval_path": other})
    assert (only.size, only.eval_size) == (0, 3)


def test_prompts() -> None:
    chat = Prompting(system="Be brief.", shots=1).prompt("How many?")
    assert isinstance(chat, list)
    assert [m["role"] for m in chat] == ["system", "user", "assistant", "user"]
    assert "\\boxed{" in chat[2]["content"]
    assert chat[3]["content"].startswith("How many?\n")
    plain_prompt = Prompting("plain", shots=2).prompt("How many?")
    assert isinstance(plain_prompt, str)
    assert plain_prompt.count("Question:") == 3
    assert plain_prompt.endswith("Question: How many?\nAnswer:")
    assert Prompting("plain", instruction="Box it.").prompt("How many?") == "Question: How many? Box it.\nAnswer:"
    assert Prompting(instruction="").prompt("How many?") == [{"role": "user", "content": "How many?"}]
    assert Prompting("plain").truncate("5\nQuestion: next") == "5"
    assert Prompting().truncate("5\nQuestion: next") == "5\nQuestion: next"
    assert (Prompting("plain").stop, Prompting().stop) == (("\nQuestion:",), ())
    with pytest.raises(ConfigError, match=r"task\.system"):
        Prompting("plain", system="x")


@pytest.mark.parametrize(
    ("system", "first"),
    [(None, [("system", "Its own.")]), ("Be brief.", [("system", "Be brief.")]), ("", [])],
)
def test_a_data_sets_own_system_message_comes_first_or_makes_room(
    system: str | None, first: list[tuple[str, str]]
) -> None:
    own = [{"role": role, "content": f"{name} own."} for role, name in (("system", "Its"), ("user", "My"))]
    chat = Prompting(system=system, shots=1, instruction="").prompt(own)
    assert isinstance(chat, list)
    said = [(m["role"], m["content"]) for m in chat]
    assert said[: len(first)] == first
    assert [role for role, _ in said[len(first) :]] == ["user", "assistant", "user"]
    assert said[-1] == ("user", "My own.")


def test_a_continuation_that_invents_questions_is_graded_on_its_own_answer(tmp_path: Path) -> None:
    task = tasks.build("words", {"prompt": "plain", "shots": 1})
    problem = task.problem(0)
    text = f" \\boxed{{{problem.gold}}}\n\nQuestion: another\nAnswer: \\boxed{{99}}"
    assert task.grade([Answer(problem, text)])[0].reward == 1.0


BAD = [
    ([*plain(16), "{not json"], "line 17: not JSON"),
    ([*plain(2), "[1, 2]"], "line 3: is a JSON list"),
    ([{"problem": "?"}], r"line 1: no gold column: looked for answer, .*the row has problem; set task\.gold_column"),
    ([{"answer": "1"}], "line 1: no question column"),
    ([{"problem": "?", "answer": "  "}], "line 1: the right answer is empty"),
    ([{"problem": " ", "answer": "1"}], "line 1: the question is ' '"),
    ([{"problem": "?", "answer": [1, 2]}], r"line 1: the right answer is \[1, 2\]"),
    ([*plain(3), *plain(1)], "line 4: id 'p0' again, as in .*line 1"),
    ([], "the data set is empty"),
    ([{"problem": "?", "answer": None}], r"line 1: answer is null; .*choose another task\.gold_column"),
    ([{"problem": "?", "answer": float("nan")}], "line 1: the right answer is NaN"),
    ([{"problem": [{"role": "user", "content": 5}], "answer": "1"}], "each with role and content as text"),
]


@pytest.mark.parametrize(("rows", "message"), BAD)
def test_a_wrong_file_is_named_with_its_line(tmp_path: Path, rows: list[Any], message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    with pytest.raises(InputError, match=message):
        tasks.build("jsonl", {"path": str(path)})


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs task\.path: .*for example openai/gsm8k"):
        tasks.build("gsm8k")
    with pytest.raises(InputError, match="no such file or folder; give a"):
        tasks.build("jsonl", {"path": str(tmp_path / "missing.jsonl")})
    with pytest.raises(InputError, match=r"no \.jsonl or \.json or \.parquet file"):
        tasks.build("jsonl", {"path": str(tmp_path)})
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"x\.parquet: not a parquet file"):
        tasks.build("parquet", {"path": str(tmp_path / "x.parquet")})
    write(tmp_path / "only" / "test.jsonl", plain(2))
    with pytest.raises(InputError, match="no files of split 'train'; the folder has test"):
        tasks.build("jsonl", {"path": str(tmp_path / "only")})
    (tmp_path / "x.csv").write_text("a,b")
    with pytest.raises(InputError, match="files of this kind are not read"):
        tasks.build("jsonl", {"path": str(tmp_path / "x.csv")})


class FakeDatasets(types.ModuleType):
    """Stands for the datasets library: two splits of one data set, or no network."""

    online = True
    config = types.SimpleNamespace(HF_ENDPOINT="http://localhost", HF_DATASETS_CACHE="/nowhere", HF_HUB_OFFLINE=False)

    def get_dataset_config_names(self, name: str) -> list[str]:
        self._check()
        return ["main", "socratic"]

    def get_dataset_split_names(self, name: str, subset: str | None) -> list[str]:
        self._check()
        return ["train", "test"]

    def load_dataset(self, name: str, subset: str | None, split: str) -> list[dict[str, Any]]:
        self._check()
        if (name, subset) != ("openai/gsm8k", "main") or split not in ("train", "test"):
            raise ValueError("in words that may change")
        return [{"question": f"{split}?", "answer": "#### 3"}]

    def _check(self) -> None:
        if not self.online:
            raise ConnectionError("no route to host")


def test_a_hugging_face_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDatasets("datasets")
    fake.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    task = tasks.build("gsm8k", {"path": "openai/gsm8k", "subset": "main"})
    assert (task.size, task.eval_size) == (1, 1)
    assert question(task).startswith("train?")
    for options, option, allowed in (
        ({}, "subset", ("main", "socratic")),
        ({"subset": "main", "split": "trian"}, "split", ("train", "test")),
    ):
        with pytest.raises(
            DataChoiceError, match=r"cannot be fetched \(ValueError: in words that may change"
        ) as caught:
            tasks.build("gsm8k", {"path": "openai/gsm8k", **options})
        assert (caught.value.option, caught.value.allowed) == (option, allowed)
    fake.online = False
    with pytest.raises(InputError, match=r"cannot be fetched \(ConnectionError.*path of the \.jsonl or \.parquet file"):
        tasks.build("gsm8k", {"path": "openai/gsm8k", "subset": "main"})


def test_a_host_without_an_address_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeDatasets("datasets")
    fake.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "datasets", fake)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    config = {**vars(FakeDatasets.config), "HF_ENDPOINT": "https://nowhere.invalid", "HF_DATASETS_CACHE": str(tmp_path)}
    fake.config = types.SimpleNamespace(**config)
    monkeypatch.setattr(FakeDatasets, "load_dataset", lambda *_, **__: pytest.fail("asked"))
    with pytest.raises(InputError, match=r"cannot be fetched \(gaierror.*without a network download one of its files"):
        tasks.build("gsm8k", {"path": "openai/gsm8k", "subset": "main"})
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "datasets", fake)
    (tmp_path / "openai___gsm8k").mkdir()
    assert tasks.build("gsm8k", {"path": "openai/gsm8k", "subset": "main"}).size == 1


@pytest.mark.slow
def test_the_datasets_library_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its rows, lists and structs are what the loader reads; only the name is led to a folder."""
    library: Any = pytest.importorskip("datasets")
    load, splits, folder = library.load_dataset, library.get_dataset_split_names, str(tmp_path / "data")
    for split, golds in (("train", "34 7 34"), ("test", "8")):
        rows = [dapo(f"{split}-{gold}", gold) for gold in golds.split()]
        write(tmp_path / "data" / f"{split}-00000-of-00001.parquet", rows)
    monkeypatch.setattr(library, "load_dataset", lambda name, *a, **k: load(folder, *a, cache_dir=str(tmp_path), **k))
    monkeypatch.setattr(library, "get_dataset_split_names", lambda name, subset: splits(folder, subset))
    monkeypatch.setattr(library.config, "HF_ENDPOINT", "http://localhost")
    task = tasks.build("dapo-math-17k", {"path": "owner/name"})
    assert [task.problem(i).id for i in range(task.size or 0)] == ["train-34", "train-7"]
    assert [task.eval_problem(i).gold for i in range(task.eval_size or 0)] == ["8"]
    assert question(task) == dapo("", "34")["prompt"][0]["content"]
    with pytest.raises(InputError, match=r"cannot be fetched .*no_such_split"):
        tasks.build("dapo-math-17k", {"path": "owner/name", "split": "no_such_split"})


def test_a_hugging_face_name_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'lagproof\[datasets\]', or give the path"):
        tasks.build("gsm8k", {"path": "openai/gsm8k"})


def test_names_and_options() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'gsm8k'"):
        tasks.build("gsm8")
    with pytest.raises(UnknownNameError, match=r"did you mean 'task\.gold_column'"):
        tasks.build("gsm8k", {"gold_colum": "x"})
    with pytest.raises(ConfigError, match=r"task\.answer_form = 'box': must be boxed \| marked \| whole"):
        tasks.build("words", {"answer_form": "box"})
    with pytest.raises(ConfigError, match=r"task\.held_out = 1\.0"):
        tasks.build("jsonl", {"path": "x.jsonl", "held_out": 1.0})


def test_every_task_of_the_table_lists_its_options_and_their_resolution_reads_back() -> None:
    for name in tasks.TASKS:
        listed = tasks.options(name)
        assert all(help_text for _, _, help_text in listed), name
        resolved = tasks.resolve(name)
        assert tasks.resolve(name, resolved) == resolved
    assert tasks.resolve("dapo-math-17k")["answer_form"] == "marked"
    assert tasks.resolve("dapo-math-17k", {"answer_form": "boxed"})["answer_form"] == "boxed"


@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not part of the repository")
@pytest.mark.parametrize(
    ("name", "options", "size", "eval_size", "gold"),
    [
        ("gsm8k", {"path": "gsm8k"}, 7473, 1319, "18"),
        ("aime", {"eval_path": "aime24.jsonl"}, 0, 30, "204"),
        ("amc", {"eval_path": "amc23.jsonl"}, 0, 40, "27"),
        ("math", {"eval_path": "addsub.jsonl"}, 0, 395, "43"),
    ],
)
def test_real_files(name: str, options: dict[str, str], size: int, eval_size: int, gold: str) -> None:
    task = tasks.build(name, {key: str(DATA / value) for key, value in options.items()})
    assert (task.size, task.eval_size) == (size, eval_size)
    problems = [task.eval_problem(i) for i in range(eval_size)]
    assert problems[0].gold == gold
    grades = task.grade([Answer(p, f"\\boxed{{{p.gold}}}") for p in problems])
    assert {g.reason for g in grades} == {"correct"}
    task.close()
