"""The page of tasks says what the code does: its tables are the code's, its answers graded, its commands typed."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

from lagproof import tasks
from lagproof.cli import app
from lagproof.config import Config
from lagproof.data.samples import Finish, Group, Sample
from lagproof.errors import InputError
from lagproof.evaluation.result import EvalResult, GradedResponse, ModelDifference, ProblemResult
from lagproof.evaluation.run import Settings, parse_tasks
from lagproof.evaluation.statistics import bootstrap
from lagproof.grading.constants import MAX_RESULT_DIGITS
from lagproof.grading.extract import MAX_CHARS, Form
from lagproof.grading.grader import Grader, reward
from lagproof.grading.judge import MAX_DEPTH, Verdict
from lagproof.grading.pool import Limits
from lagproof.grading.votes import answer_key
from lagproof.metrics.responses import by_task
from lagproof.runs.evaluation import SCHEMA
from lagproof.settings.toml import parse_override
from lagproof.tasks import files, gym, prompts, schemas
from lagproof.tasks.arithmetic import ArithmeticOptions, ArithmeticTask
from lagproof.tasks.math import DataOptions, PromptOptions, WordOptions
from lagproof.tasks.mixture import RESERVED, MixtureOptions, parts_of
from lagproof.tasks.task import Answer

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tasks.md"
TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def table(section: str, head: str) -> list[list[str]]:
    """Cells of the table of a section whose first column has this head."""
    _, found, rest = SECTIONS[section].partition(f"| {head} |")
    assert found, f"{section}: no table of {head}"
    lines = rest.split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def bare(cell: str) -> str:
    return cell.strip("`")


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]
CONFIGURATIONS = [*blocks("toml"), (ROOT / "examples" / "mixture.toml").read_text(encoding="utf-8")]


class TestTasks:
    def test_every_task_stands_in_the_table(self):
        assert table("Tasks", "name") == [[f"`{name}`", info.summary] for name, info in tasks.TASKS.items()]

    def test_every_option_stands_in_the_table_with_its_default(self):
        def rows(of: str, cls: type, base: type | None = None) -> list[list[str]]:
            inherited = {f.name for f in dataclasses.fields(base)} if base else set()
            own = [f for f in dataclasses.fields(cls) if f.name not in inherited]
            return [[f"`{f.name}`", written(default(f)), of, f.metadata["description"]] for f in own]

        assert table("Tasks", "option") == [
            *rows("all in words", PromptOptions),
            *rows("data sets", DataOptions, PromptOptions),
            *rows("`arithmetic`", ArithmeticOptions),
            *rows("`words`", WordOptions, PromptOptions),
            *rows("`reasoning-gym`", gym.GymOptions, PromptOptions),
            *rows("`mixture`", MixtureOptions),
        ]

    def test_which_tasks_have_which_options(self):
        kinds = {name: info.options for name, info in tasks.TASKS.items()}
        in_words = [name for name, kind in kinds.items() if issubclass(kind, PromptOptions)]
        assert in_words == [name for name in kinds if name not in ("arithmetic", "mixture")]
        data = [name for name, kind in kinds.items() if kind is DataOptions]
        assert (data[0], data[-1]) == ("math", "parquet")
        assert data == list(kinds)[list(kinds).index("math") : list(kinds).index("parquet") + 1]

    def test_other_defaults_are_named(self):
        changed = {name: info.defaults for name, info in tasks.TASKS.items() if info.defaults}
        sentences = re.findall(r"`([a-z0-9-]+)` has\s+other defaults: (.*?)\.", TEXT)
        said = {name: tomllib.loads("\n".join(re.findall(r"`(.*?)`", text))) for name, text in sentences}
        assert said == changed


def default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def written(value: Any) -> str:
    return "" if value is None else f"`{json.dumps(value)}`"


class TestDataSets:
    def test_every_schema_stands_in_the_table(self):
        rows = {bare(name): row for row in table("Data sets", "data set") for name in row[1].split(", ")}
        assert set(rows) == set(schemas.SCHEMAS)
        for name, schema in schemas.SCHEMAS.items():
            question, gold, published = rows[name][2:]
            assert question.startswith(f"`{schema.columns.question}`" if schema.columns.question else "usual names")
            assert gold.startswith(f"`{schema.columns.gold}`" if schema.columns.gold else ("usual names", "the same"))
            assert published.startswith(f"`{schema.published}`") if schema.published else not published

    def test_the_usual_names_stand_in_their_order(self):
        for role, names in (
            ("question", schemas.QUESTIONS),
            ("answer", schemas.GOLDS),
            ("id", schemas.IDS),
        ):
            listed = r"\s+".join(f"`{re.escape(name)}`" for name in names)
            assert re.search(rf"\b{role}\s+{listed}[;,.]", TEXT), role

    def test_what_a_solution_gives(self):
        for name, gold in (("math", "2"), ("jsonl", "2"), ("dolci-rl-zero-math", "2"), ("gsm8k", "3")):
            assert schemas.SCHEMAS[name].gold_of("\\boxed{1} \\boxed{2} #### 3") == gold, name
        for name, gold in (("math", "a #### 3"), ("jsonl", "3"), ("parquet", "3"), ("gsm8k", "3")):
            assert schemas.SCHEMAS[name].gold_of("a #### 3") == gold, name

    def test_which_files_of_a_folder_a_split_has(self, tmp_path):
        for name in ("train.jsonl", "train-0.jsonl", "train_b.jsonl", "train/a/b.jsonl", "x_train.jsonl", "test.jsonl"):
            write(tmp_path / "named" / name, [{"id": name, "problem": "?", "answer": "1"}])
        task = tasks.build("jsonl", {"path": str(tmp_path / "named")})
        assert {task.problem(i).id for i in range(task.size)} == {
            "train.jsonl",
            "train-0.jsonl",
            "train_b.jsonl",
            "train/a/b.jsonl",
            "x_train.jsonl",
        }
        assert [task.eval_problem(i).id for i in range(task.eval_size)] == ["test.jsonl"]
        for name in ("x_a.jsonl", "x_b.jsonl"):
            write(tmp_path / "unnamed" / name, [{"id": f"{name}{i}", "problem": "?", "answer": "1"} for i in range(10)])
        task = tasks.build("jsonl", {"path": str(tmp_path / "unnamed")})
        assert (task.size, task.eval_size) == (18, 2)
        (listed_splits,) = re.findall(r"names no split \((.*?)\)", TEXT, re.DOTALL)
        assert tuple(listed(listed_splits)) == files._SPLITS

    def test_columns_hold_for_both_sides(self, tmp_path):
        row = {"prompt": "?", "reward_model": {"ground_truth": "1"}, "extra_info": {"index": "a"}}
        path = write(tmp_path / "dapo.jsonl", [row])
        other = write(tmp_path / "aime.jsonl", [{"id": 1, "problem": "?", "answer": "1"}])
        with pytest.raises(InputError, match="no question column"):
            tasks.build("dapo-math-17k", {"path": path, "eval_path": other})


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


class TestConfigurations:
    @pytest.mark.parametrize("text", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
    def test_each_is_one(self, text, tmp_path):
        file = tmp_path / "x.toml"
        file.write_text(text)
        task = Config.load(file).task
        options = tasks.resolve(task.name, task.options)
        if task.name == "mixture":
            parts = parts_of(tasks.TASKS["mixture"].read(task.options))
            assert len(parts) >= 2 and len({part.weight for part in parts}) == 2
            for part in parts:
                tasks.resolve(part.name, part.options)
        else:
            assert options.keys() >= task.options.keys()

    def test_each_data_set_of_the_table_has_one(self):
        named = {tomllib.loads(text)["task"]["name"] for text in CONFIGURATIONS}
        assert named >= {"gsm8k", "math", "dapo-math-17k", "dolci-rl-zero-math", "parquet", "mixture"}

    def test_the_names_of_hugging_face_are_those_of_the_table(self):
        published = {schema.published for schema in schemas.SCHEMAS.values()}
        paths = [v for t in CONFIGURATIONS for k, v in tomllib.loads(t)["task"].items() if k in ("path", "eval_path")]
        assert {path for path in paths if re.fullmatch(r"[\w-]+/[\w-]+", path)} <= published


class TestPrompts:
    def test_every_form_stands_in_the_table_with_its_instruction(self):
        rows = table("Prompts", "`answer_form`")
        assert [(bare(form), text) for form, _, text in rows] == [(str(f), prompts.INSTRUCTIONS[f]) for f in Form]

    def test_what_makes_an_instruction_superfluous(self):
        (sentence,) = re.findall(r"where the question asks already: (.*?)\.\s", TEXT, re.DOTALL)
        boxed, marked = sentence.split("(boxed)")
        asked = {Form.BOXED: boxed, Form.MARKED: marked, Form.WHOLE: ""}
        for form, text in asked.items():
            words = re.findall(r"`(.*?)`", text)
            assert tuple(words) == prompts._ASKS[form]
            for word in words:
                assert prompts.Prompting(form=form).prompt(f"{word}?") == [{"role": "user", "content": f"{word}?"}]

    def test_plain_shots_replace_the_usual_instruction(self):
        usual, own = prompts.Prompting("plain"), prompts.Prompting("plain", instruction="Box it.")
        assert "reason step by step" in usual.prompt("?")
        assert "reason step by step" not in dataclasses.replace(usual, shots=1).prompt("?")
        text = dataclasses.replace(own, shots=2).prompt("?")
        assert text.startswith("Box it.\n\nQuestion: ") and text.count("Box it.") == 1
        assert text.endswith("Question: ?\nAnswer:")

    def test_marks_in_bold(self):
        (sentence,) = re.findall(
            r"A mark has the answer on its line, or a box below it: (.*?)\.", " ".join(TEXT.split())
        )
        *lines, box, _ = listed(sentence)
        assert len(lines) == 4
        with Grader(Form.MARKED) as grader:
            texts = [*lines, f"Answer:\n{box}", "Answer:\n34"]
            reasons = [g.reason for g in grader.grade([("34", text) for text in texts])]
        assert reasons == ["correct"] * 5 + ["unparsed"]


class TestMixtures:
    def test_the_labels_that_are_taken(self):
        (sentence,) = re.findall(r"need a\s+`label`\s+each,\s+but\s+none of (.*?),", TEXT, re.DOTALL)
        assert tuple(listed(sentence)) == RESERVED

    def test_the_names_of_the_metrics(self):
        named = {bare(name) for row in table("Mixtures", "name") for name in row[0].split(", ")}
        both = ("a", "b")
        samples = [Sample([1], [1], [0], Finish.STOP, reward=1.0)]
        batch = by_task([Group(i, "x", samples, {"task": task}) for i, task in enumerate(both)])
        found = [ProblemResult("x", task, "1", 2, [response(task, 0)]) for task in both]
        found += [ProblemResult("y", task, "", 2, [response(task, 0, float("nan"))]) for task in both]
        keys = {key for key in {*batch, *EvalResult(2, found).metrics()} if key.of is not None}
        assert {re.sub(r"\b[ab]/", "<task>/", key.flat) for key in keys} == named
        assert by_task([Group(0, "x", samples, {"task": "a"})]) == {}


def response(task: str, sample: int, worth: float = 1.0) -> GradedResponse:
    return GradedResponse("x", task, sample, worth, "correct", "1", 1, Finish.STOP, "1", "1")


class TestRewards:
    def test_every_reason_stands_in_the_table(self):
        rows = {bare(reason): worth for reason, worth, _ in table("Rewards", "reason")}
        assert set(rows) == {*map(str, Verdict), "truncated", "partial"}
        for verdict in Verdict:
            worth = reward(verdict)
            assert rows[verdict] == ("none" if worth != worth else str(int(worth)))
        task = ArithmeticTask()
        (cut,) = task.grade([Answer(task.problem(0), task.problem(0).gold, Finish.LENGTH)])
        assert (cut.reason, str(int(cut.reward))) == ("truncated", rows["truncated"])
        part = gym._grade("0.25")
        assert (part.reason, 0 < part.reward < 1, rows["partial"]) == ("partial", True, "between")

    def test_every_answer_is_graded_as_the_page_says(self):
        rows = table("Rewards", "right answer")
        assert len(rows) > 25
        with Grader(limits=Limits(time_s=60, workers=1)) as grader:
            grades = grader.grade([(bare(gold), f"\\boxed{{{bare(answer)}}}") for gold, answer, _, _ in rows])
        wrong = [(row[:3], g.reason) for row, g in zip(rows, grades, strict=True) if g.reason != bare(row[2])]
        assert not wrong
        assert {bare(row[2]) for row in rows} == {"correct", "wrong", "unparsed", "bad_gold"}

    def test_the_limits(self):
        text = " ".join(SECTIONS["Rewards"].split())
        assert f"more than {MAX_CHARS} characters" in text
        assert f"more than {MAX_DEPTH} deep" in text
        assert f"more than {MAX_RESULT_DIGITS} digits" in text


class TestCommands:
    @pytest.mark.parametrize("line", COMMANDS)
    def test_each_is_understood(self, line):
        program, name, *args = shlex.split(line)
        assert program == "lagproof"
        given = typed(name, args)
        if name == "eval":
            fields = {f.name for f in dataclasses.fields(Settings)}
            Settings(**{key: value for key, value in given.items() if key in fields})
            for choice in parse_tasks(given["task"], dict(map(parse_override, given["set_"] or []))):
                tasks.resolve(choice.name, choice.options)
                assert choice.name != "jsonl"
        else:
            assert Form(given["form"])

    def test_an_option_that_is_none_is_noticed(self):
        with pytest.raises(Exception, match="No such option"):
            typed("grade", ["a.jsonl", "--answers", "x"])

    def test_labels(self):
        names = {choice.label: choice.name for choice in parse_tasks(["aime24=a", "dapo=b", "GSM8K=c", "da=d"])}
        assert names == {"aime24": "aime", "dapo": "dapo-math-17k", "GSM8K": "gsm8k", "da": "jsonl"}

    def test_grading_a_file_gives_the_output_of_the_page(self, tmp_path, monkeypatch, capsys):
        given, graded = blocks("json")
        monkeypatch.chdir(tmp_path)
        Path("answers.jsonl").write_text(given)
        run(COMMANDS[0])
        assert Path("graded.jsonl").read_text() == graded
        said = capsys.readouterr().err.strip()
        assert said and f"`{said}`" in TEXT

    def test_an_evaluation_writes_the_files_of_the_page(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        run(next(line for line in COMMANDS if line.startswith("lagproof eval tiny-dense")))
        described = {bare(name): about for name, about in table("`lagproof eval`", "file in `--out`")}
        found = [p.relative_to("runs/eval").as_posix() for p in Path("runs/eval").rglob("*") if p.is_file()]
        shapes = {re.sub(r"^[^/]+/[^/]+/", "<model>/<task>/", name) for name in found}
        assert shapes == set(described) - {"<model>/<task>/part-*.parquet"}
        folder = Path("runs/eval/tiny-dense/arithmetic")
        columns = pq.read_table(folder / "samples.parquet").column_names
        assert columns == SCHEMA.names == listed(described["<model>/<task>/samples.parquet"])
        row = json.loads((folder / "problems.jsonl").read_text().splitlines()[0])
        assert list(row) == listed(described["<model>/<task>/problems.jsonl"])
        whole = json.loads(Path("runs/eval/result.json").read_text())
        assert list(whole) == listed(described["result.json"])
        (sentence,) = re.findall(r"^A result has (.*?)\.\n", TEXT, re.MULTILINE | re.DOTALL)
        numbers, gap = (listed(part) for part in sentence.split("; a difference"))
        assert list(whole["results"]["arithmetic"]["tiny-moe"]) == numbers
        assert (
            list(whole["differences"]["arithmetic"][0]) == gap == [f.name for f in dataclasses.fields(ModelDifference)]
        )
        assert "avg@4" in capsys.readouterr().out


class TestStatistics:
    def test_the_numbers_of_the_bootstrap(self):
        (row,) = [about for name, about in table("Statistics", "number") if name == "95 %"]
        parameters = inspect.signature(bootstrap).parameters
        assert f"{parameters['resamples'].default} resamples" in row and parameters["level"].default == 0.95
        assert bootstrap([1.0]) is None and "none with fewer than two problems" in row

    def test_votes(self):
        (sentence,) = re.findall(r"^\* Votes are (.*?)\n\* ", TEXT, re.MULTILINE | re.DOTALL)
        gold, *same, root, other = listed(sentence)
        assert len(same) == 4 and len({answer_key(text, gold) for text in same}) == 1
        assert answer_key(root, other) != answer_key(other, other)


def listed(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def typed(name: str, args: list[str]) -> dict[str, Any]:
    """What the command line makes of the arguments of a command, without running it."""
    return typer.main.get_command(app).commands[name].make_context(name, args).params  # type: ignore[attr-defined]


def run(line: str) -> None:
    app(shlex.split(line)[1:], standalone_mode=False)


def test_the_code_of_the_page_runs():
    parsed = doctest.DocTestParser().get_doctest(TEXT, {}, "tasks.md", str(PAGE), 0)
    assert len(parsed.examples) >= 3
    assert doctest.DocTestRunner().run(parsed).failed == 0


def test_the_readme_leads_here():
    assert "](docs/tasks.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
