"""Files as trainers write them: small ones in ``files/``, and single columns in every shape that was seen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from lagproof.dumps.columns import MissingColumnError
from lagproof.dumps.doctor import doctor
from lagproof.dumps.dump import read_dump
from lagproof.errors import InputError

FILES = Path(__file__).parent / "files"


def d_bar(dump):
    d = torch.cat([batch.tokens.policy_logp - batch.tokens.sampler_logp for batch in dump.batches])
    return float(d[d.isfinite()].abs().mean())


def test_nemo_rl_writes_slices_of_one_and_leaves_samples_out():
    dump = read_dump(FILES / "nemo-rl")
    rows = [json.loads(line) for line in (FILES / "nemo-rl" / "train_data_step2.jsonl").read_text().splitlines()]
    d = [
        abs(prev - gen)
        for row in rows
        if row["sample_loss_mask"] == [1.0]
        for prev, gen, on in zip(
            row["prev_logprobs"][0], row["generation_logprobs"][0], row["token_loss_mask"][0], strict=True
        )
        if on
    ]
    assert (dump.num_tokens, d_bar(dump)) == (len(d), pytest.approx(sum(d) / len(d), rel=1e-4))
    assert dump.batches[0].reward.tolist() == [0.0, 1.0, 0.0, 1.0]
    assert any("no log-probabilities of both: val_data_step2.jsonl" in note for note in dump.notes)
    assert any("1 of 4 responses are left out by 'sample_loss_mask'" in note for note in dump.notes)


def test_prime_rl_writes_a_folder_a_step_and_a_file_a_rank():
    for path in (FILES / "prime-rl" / "token_exports", FILES / "prime-rl"):
        dump = read_dump(path)
        assert [(batch.step, batch.tokens.num_responses) for batch in dump.batches] == [(4, 4), (11, 4)]
    assert d_bar(dump) < 0.03


def test_files_below_are_in_the_order_of_the_numbers_of_their_folders(tmp_path):
    for folder, logp in (("step_10", -3.0), ("step_9", -2.0)):
        for rank in (0, 1):
            (tmp_path / folder).mkdir(exist_ok=True)
            row = {"trainer_logprobs": [logp], "inference_logprobs": [logp - 0.01 * rank]}
            (tmp_path / folder / f"rank_{rank}.jsonl").write_text(json.dumps(row) + "\n")
    dump = read_dump(tmp_path)
    assert [batch.tokens.policy_logp.tolist() for batch in dump.batches] == [[-2.0, -2.0], [-3.0, -3.0]]
    assert any("one optimiser step a folder" in note for note in dump.notes)


@pytest.mark.parametrize("written", ["json", "pt"])
def test_slime_train_data(written, tmp_path):
    tree = json.loads((FILES / "slime" / "train_12_0.json").read_text())
    data = tree["rollout_data"]
    path = FILES / "slime" / "train_12_0.json"
    if written == "pt":
        path = tmp_path / "12_0.pt"
        for name in ("log_probs", "rollout_log_probs", "tokens", "advantages", "loss_masks"):
            data[name] = [torch.tensor(x) for x in data[name]]
        torch.save(tree, path)
    dump = read_dump(path)
    assert dump.num_tokens == sum(data["response_lengths"]) and dump.batches[0].step == 12
    assert dump.batches[0].truncated.tolist() == [False, False, False, True]
    assert dump.batches[0].tokens.policy_logp[0] == pytest.approx(float(data["log_probs"][0][0]))


def test_torch_files_that_would_run_code_are_refused(tmp_path):
    torch.save({"samples": [Path("x")]}, tmp_path / "1.pt")
    with pytest.raises(InputError, match="would have to be executed"):
        read_dump(tmp_path / "1.pt")
    (tmp_path / "1.pkl").write_bytes(b"")
    with pytest.raises(InputError, match="a pickle can run any code"):
        read_dump(tmp_path / "1.pkl")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("slime/rollout_12.json", "--save-debug-train-data has both"),
        ("areal", "looks like a file of AReaL"),
        ("verl/5.jsonl", "calculate_log_probs=True"),
        ("trl", "looks like a file of TRL: log_completions writes texts"),
    ],
)
def test_files_of_texts_are_recognised_and_what_to_write_is_said(path, said):
    with pytest.raises(MissingColumnError) as error:
        read_dump(FILES / path)
    assert said in str(error.value)


def test_verl_columns_are_padded_and_masked():
    dump = read_dump(FILES / "verl" / "columns.jsonl")
    rows = [json.loads(line) for line in (FILES / "verl" / "columns.jsonl").read_text().splitlines()]
    assert dump.num_tokens == sum(sum(row["response_mask"]) for row in rows)
    assert dump.batches[0].reward.tolist() == [0.0, 1.0] * 4


BASE = {"policy_logp": [-0.5, -0.6], "sampler_logp": [-0.5, -0.61]}


def written(path, rows, layout):
    if layout == "jsonl":
        path = path.with_suffix(".jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif layout == "json":
        path = path.with_suffix(".json")
        path.write_text(json.dumps(rows, indent=1))
    else:
        path = path.with_suffix(".parquet")
        pq.write_table(pa.table({key: [row.get(key) for row in rows] for key in rows[0]}), path)
    return path


def uses(value, attribute):
    """A column of these values is used, and the batch has this of it."""
    return (value, attribute, None)


def left_out(value, said):
    """A column of these values is left out, and the note says so."""
    return (value, None, said)


SHAPES = [
    ("finish_reason", *uses([{"type": "length"}, {"type": "stop", "matched": 2}], ("truncated", [True, False]))),
    ("finish_reason", *uses(["MAX_TOKENS", "end_turn"], ("truncated", [True, False]))),
    ("finish_reason", *uses(["FinishReason.LENGTH", None], ("truncated", [True, False]))),
    ("status", *uses(["truncated", "completed"], ("truncated", [True, False]))),
    ("truncated", *uses([1, 0], ("truncated", [True, False]))),
    ("finish_reason", *left_out([True, False], "'finish_reason' (finish) was left out: it is bool")),
    ("finish_reason", *left_out(["weird", "other"], "none of its words is known (other, weird)")),
    ("weight_versions", *uses([["2", "4"], ["3", "3"]], ("tokens.version", [2, 4, 3, 3]))),
    ("weight_versions", *uses([["2"], ["3"]], ("tokens.version", [2, 2, 3, 3]))),
    ("version", *uses([2, [3, 4]], ("tokens.version", [2, 2, 3, 4]))),
    ("version", *left_out([1.5, 2.0], "missing or no whole numbers")),
    ("step", *left_out([None, 1], "missing or no whole numbers")),
    ("step", *uses(["3", "3"], ("step", 3))),
    ("group_index", *uses([[0], [0]], ("tokens.group", [0, 0]))),
    ("uid", *uses([7, "b"], ("tokens.group", [0, 1]))),
    ("uid", *left_out([{"id": 1}, {"id": 2}], "'uid' (group) was left out: in ")),
    ("reward", *uses(["1.0", 0], ("reward", [1.0, 0.0]))),
    ("reward", *uses([[1.0], [0.5]], ("reward", [1.0, 0.5]))),
    ("entropy", *left_out(["n/a", "n/a"], "'entropy' was left out: in ")),
    ("advantages", *uses([[[0.5, 0.7]], [[1.0, 1.0]]], ("tokens.advantage", [0.5, 0.7, 1.0, 1.0]))),
    ("advantages", *uses([0.5, [1.0, 2.0]], ("tokens.advantage", [0.5, 0.5, 1.0, 2.0]))),
    ("advantages", *left_out([[0.5] * 3, [1.0] * 3], "row 0 has 3 values, 'policy_logp' has 2")),
    ("loss_mask", *uses([[1, 0], None], ("tokens.policy_logp", [-0.5, -0.5, -0.6]))),
    ("token_loss_mask", *uses([[0, 1], [1, 1]], ("tokens.policy_logp", [-0.6, -0.5, -0.6]))),
    ("remove_sample", *uses([True, False], ("tokens.response", [1, 1]))),
]


@pytest.mark.parametrize("layout", ["jsonl", "json", "parquet"])
@pytest.mark.parametrize(("name", "values", "want", "said"), SHAPES)
def test_columns_in_every_shape(name, values, want, said, layout, tmp_path):
    rows = [{**BASE, name: value} for value in values]
    try:
        path = written(tmp_path / "dump", rows, layout)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pytest.skip("parquet has one kind a column")
    dump = read_dump(path)
    batch = dump.batches[0]
    if want is None:
        assert any(said in note for note in dump.notes), dump.notes
        assert name not in dump.columns.values() or said.startswith(("missing", "none of", "row", "'finish"))
        return
    found = batch
    for part in want[0].split("."):
        found = getattr(found, part)
    got = found.tolist() if isinstance(found, torch.Tensor) else found
    assert got == (pytest.approx(want[1]) if isinstance(want[1], list) and isinstance(want[1][0], float) else want[1])
    assert doctor(path).exit_code in (0, 3)  # the file is judged in any case


def test_a_column_that_is_null_in_the_first_lines(tmp_path):
    rows = [{**BASE, "loss_mask": None, "uid": 1} for _ in range(25)]
    rows += [{**BASE, "loss_mask": [0, 1], "uid": "b"} for _ in range(15)]
    dump = read_dump(written(tmp_path / "dump", rows, "jsonl"))
    assert dump.num_tokens == 25 * 2 + 15 and dump.num_responses == 40
    assert any("'loss_mask' (mask) is null for 25 of 40 responses: every token" in note for note in dump.notes)


def test_a_role_can_be_switched_off(tmp_path):
    rows = [{**BASE, "entropy": 0.5, "reward": 1.0}] * 2
    dump = read_dump(written(tmp_path / "dump", rows, "jsonl"), {"entropy": ""})
    assert dump.batches[0].entropy is None and dump.batches[0].reward is not None
    with pytest.raises(InputError, match="--map policy_logp=: policy_logp is needed"):
        read_dump(tmp_path / "dump.jsonl", {"policy_logp": ""})


@pytest.mark.parametrize("layout", ["jsonl", "parquet"])
def test_an_unused_mask_is_named(layout, tmp_path):
    rows = [{**BASE, "my_mask": [0, 1], "masked_text": "x"}] * 2
    note = "'my_mask' holds 0 and 1 and is not used: if it tells the tokens that count, add --map mask=my_mask"
    path = written(tmp_path / "dump", rows, layout)
    assert note in read_dump(path).notes and note not in read_dump(path, {"mask": "my_mask"}).notes


@pytest.mark.parametrize("cut", [[[0, -0.5], [1, -0.6]], [[[0, -0.5]], [[1, -0.6]]], [{"logprob": -0.5}]])
def test_pairs_and_objects_are_no_log_probabilities(cut, tmp_path):
    rows = [{**BASE, "sampler_logp": cut}, {**BASE, "sampler_logp": [*cut, cut[0]]}]
    with pytest.raises(InputError, match=r"line 1: column 'sampler_logp' is .*; must be a list of numbers"):
        read_dump(written(tmp_path / "dump", rows, "jsonl"))


@pytest.mark.parametrize("num_groups", [2, 8])
def test_a_column_with_a_value_for_each_response_is_no_step(num_groups, tmp_path):
    rows = [{**BASE, "rollout_id": k, "uid": k % num_groups, "reward": float(k // 4)} for k in range(8)]
    dump = read_dump(written(tmp_path / "dump", rows, "jsonl"))
    assert len(dump.batches) == 1 and dump.batches[0].step is None
    assert any("another value for each of the 8 responses" in note for note in dump.notes)


def test_a_column_that_cuts_groups_apart_is_no_step(tmp_path):
    rows = [{**BASE, "rollout_id": k % 4, "uid": k // 4, "reward": float(k % 2)} for k in range(8)]
    dump = read_dump(written(tmp_path / "dump", rows, "jsonl"))
    assert len(dump.batches) == 1 and any("cuts every group apart" in note for note in dump.notes)


def test_parquet_and_lines_in_one_folder_are_both_read(tmp_path):
    written(tmp_path / "rollout_0", [BASE] * 2, "parquet")
    written(tmp_path / "rollout_1", [BASE] * 3, "jsonl")
    assert [batch.tokens.num_responses for batch in read_dump(tmp_path).batches] == [2, 3]


def test_a_missing_group_is_a_group_of_its_own(tmp_path):
    path = tmp_path / "dump.parquet"
    logp = [np.array([-1.0])] * 4
    pq.write_table(pa.table({"policy_logp": logp, "sampler_logp": logp, "uid": ["a", None, "a", None]}), path)
    group = read_dump(path).batches[0].tokens.group.tolist()
    assert group[0] == group[2] and len(set(group)) == 3
