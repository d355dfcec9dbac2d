"""What is typed behind ``--task`` and ``--set``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lagproof import tasks
from lagproof.errors import DataChoiceError, InputError, UnknownNameError
from lagproof.evaluation import choices
from lagproof.evaluation.choices import TaskChoice, build, parse_tasks
from lagproof.evaluation.settings import Settings


def test_task_choices(tmp_path: Path) -> None:
    parsed = parse_tasks(["aime24=a.jsonl", "amc23=b", "math500=c", "dapo=d", "mine=e.jsonl", "arithmetic"])
    names = ["aime", "amc", "math", "dapo-math-17k", "jsonl", "arithmetic"]
    assert [choice.name for choice in parsed] == names
    assert parsed[0] == TaskChoice("aime24", "aime", {"eval_path": "a.jsonl", "label": "aime24"})
    shouted = parse_tasks(["AIME24=a.jsonl", "GSM8K=b", "DAPO=c", "Arithmetic"])
    assert [choice.name for choice in shouted] == ["aime", "gsm8k", "dapo-math-17k", "arithmetic"]
    assert shouted[0] == TaskChoice("AIME24", "aime", {"eval_path": "a.jsonl", "label": "AIME24"})
    shared = parse_tasks(["aime24=a.jsonl", "arithmetic"], {"shots": 3, "terms": 5})
    assert [dict(choice.options).get("shots") for choice in shared] == [3, None]
    assert [dict(choice.options).get("terms") for choice in shared] == [None, 5]
    with pytest.raises(UnknownNameError, match="did you mean 'shots'"):
        parse_tasks(["aime24=a.jsonl"], {"shot": 3})
    with pytest.raises(UnknownNameError, match="did you mean 'arithmetic'"):
        parse_tasks(["arithmetik"])
    with pytest.raises(InputError, match="no file after the sign"):
        parse_tasks(["aime24="])


def test_every_label_is_evaluated_on_its_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"problem": f"{i}+1=", "answer": str(i + 1)}) + "\n" for i in range(7)))
    choices = parse_tasks([f"mine={file}"], {"prompt": "plain", "instruction": "", "answer_form": "whole"})
    task = tasks.build(choices[0].name, choices[0].options)
    assert (task.name, task.eval_size) == ("mine", 7)


@pytest.mark.parametrize("field", ["k", "prompts", "max_tokens", "batch", "temperature", "top_p", "top_k", "seed"])
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(InputError, match=f"{field} = -1: must be"):
        Settings(**{field: -1})


@pytest.mark.parametrize("label", ["", "../../zz", ".a", "-a", "_a", "a b", "a/b", "a\\b"])
def test_a_label_that_cannot_name_a_folder_is_refused(label: str) -> None:
    with pytest.raises(InputError, match=r"must be letters, digits and _ \. - , .* for example set=data/set\.jsonl"):
        parse_tasks([f"{label}=data/set.jsonl"])


@pytest.mark.parametrize("label", ["a", "7", "AIME-24_v1.5", "\u00e9t\u00e9"])
def test_a_label_that_can(label: str) -> None:
    assert parse_tasks([f"{label}=x.jsonl"])[0].label == label


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("openai/gsm8k", "gsm8k=openai/gsm8k"),
        ("../../zz", "zz=../../zz"),
        ("mine.jsonl", "mine=mine.jsonl"),
        ("./.", "mine=./."),
        ("here", "here=here"),
    ],
)
def test_a_file_or_a_name_without_a_label_is_told_of_one(
    text: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    with pytest.raises(InputError) as caught:
        parse_tasks([text])
    assert not isinstance(caught.value, UnknownNameError)
    assert str(caught.value).endswith(f"give LABEL=NAME, for example {advice}")


def test_data_that_cannot_be_used_is_said_in_the_words_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps({"problem": "1+1=", "answer": "2"}) + "\n")
    (choice,) = parse_tasks([f"mine={tmp_path}"])
    with pytest.raises(InputError, match=r"the folder has train; add --set eval_split=train$"):
        build(choice)
    assert build(parse_tasks([f"mine={tmp_path}"], {"eval_split": "train"})[0]).eval_size == 1
    with pytest.raises(InputError, match=r"; on this command line --task gsm8k=FILE, or gsm8k=NAME$"):
        build(parse_tasks(["gsm8k"])[0])
    with pytest.raises(
        InputError,
        match=r"nowhere: no such file .*, where a relative path is looked for; give a \.jsonl",
    ):
        build(parse_tasks(["mine=nowhere"])[0])


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (DataChoiceError("no", "split", ["train", "x"]), "add --set eval_split=train"),
        (DataChoiceError("no", "subset", ["main", "socratic"]), "choose one, for example --set subset=main"),
    ],
)
def test_what_a_data_set_needs_is_named_as_an_option(
    error: DataChoiceError, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_: object) -> None:
        raise error

    monkeypatch.setattr(choices.tasks, "build", fetch)
    with pytest.raises(DataChoiceError) as caught:
        build(TaskChoice("aime24", "aime"))
    assert str(caught.value) == f"no; {advice}"
    assert (caught.value.option, caught.value.allowed) == (error.option, error.allowed)


def test_a_generator_is_its_own_label() -> None:
    chosen = parse_tasks(["reasoning-gym=chain_sum", "reasoning-gym=leg_counting"])
    assert [(c.label, c.name, c.options) for c in chosen] == [
        (name, "reasoning-gym", {"generator": name}) for name in ("chain_sum", "leg_counting")
    ]
