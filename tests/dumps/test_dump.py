"""Dumps as people have them: every layout, every trainer's names, and everything that can be wrong with them."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import lagproof as lp
from lagproof.data.batch import Batch
from lagproof.data.samples import Finish, Group, Sample
from lagproof.dumps.columns import parse_mapping, resolve
from lagproof.dumps.dump import read_dump
from lagproof.dumps.trainers import TRAINERS
from lagproof.dumps.whatif import whatif
from lagproof.errors import InputError, UnknownNameError
from lagproof.runs import rollouts as record

ROWS = [
    {"policy_logp": [-1.0, -0.5], "sampler_logp": [-1.5, -0.25], "advantage": 1.0, "version": 3, "group": "a"},
    {"policy_logp": [-2.0], "sampler_logp": [-1.0], "advantage": -1.0, "version": 5, "group": "a"},
]


def jsonl(path, rows, end="\n"):
    path.write_text("\n".join(json.dumps(row) for row in rows) + end, encoding="utf-8")
    return path


def parquet(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


def as_columns(rows):
    return {key: [row.get(key) for row in rows] for key in rows[0]}


def only(path, mapping=None):
    dump = read_dump(path, mapping)
    assert len(dump.batches) == 1
    return dump, dump.batches[0]


@pytest.fixture(params=["jsonl", "parquet", "jsonl.gz"])
def write(request, tmp_path):
    def to(rows):
        if request.param == "parquet":
            return parquet(tmp_path / "dump.parquet", as_columns(rows))
        if request.param == "jsonl":
            return jsonl(tmp_path / "dump.jsonl", rows)
        import gzip

        path = tmp_path / "dump.jsonl.gz"
        path.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
        return path

    return to


def test_one_row_a_response(write):
    dump, batch = only(write(ROWS))
    assert batch.tokens.policy_logp.tolist() == [-1.0, -0.5, -2.0]
    assert batch.tokens.sampler_logp.tolist() == [-1.5, -0.25, -1.0]
    assert batch.tokens.advantage.tolist() == [1.0, 1.0, -1.0]
    assert batch.tokens.response.tolist() == [0, 0, 1] and batch.tokens.num_responses == 2
    assert batch.tokens.version.tolist() == [3, 3, 5] and batch.version == 5
    assert batch.tokens.group.tolist() == [0, 0]
    assert (dump.num_tokens, dump.num_responses, dump.advantage, batch.step) == (3, 2, "column", None)
    got = lp.mismatch(batch.tokens, batch.version)
    assert got["d_bar"] == pytest.approx((0.5 + 0.25 + 1) / 3) and got["age/2/tokens"] == 2


def test_values_a_token_where_a_response_would_do(write):
    rows = [{**ROWS[0], "advantage": [1.0, 2.0], "version": [3, 4], "entropy": [0.1, 0.2], "reward": [0.0, 1.0]}]
    _, batch = only(write(rows))
    assert batch.tokens.advantage.tolist() == [1.0, 2.0] and batch.tokens.version.tolist() == [3, 4]
    assert batch.entropy.tolist() == pytest.approx([0.1, 0.2]) and batch.reward.tolist() == [1.0]


def test_one_row_a_token_in_any_order(tmp_path):
    columns = {
        "policy_logp": [-2.0, -1.0, -3.0, -0.5],
        "sampler_logp": [-1.0, -1.5, -3.0, -0.25],
        "response": ["y", "x", "y", "x"],
        "reward": [0.0, 1.0, 0.0, 1.0],
        "group": [7, 7, 7, 7],
    }
    _, batch = only(parquet(tmp_path / "flat.parquet", columns))
    assert batch.tokens.policy_logp.tolist() == [-2.0, -3.0, -1.0, -0.5]
    assert batch.tokens.response.tolist() == [0, 0, 1, 1] and batch.reward.tolist() == [0.0, 1.0]
    assert batch.tokens.advantage.tolist() == pytest.approx([-0.7071, -0.7071, 0.7071, 0.7071], abs=1e-3)


def test_one_row_a_token_needs_to_know_the_response(tmp_path):
    with pytest.raises(InputError, match="--map response=<column>"):
        read_dump(parquet(tmp_path / "flat.parquet", {"policy_logp": [-1.0], "sampler_logp": [-1.0]}))


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda t: t.name)
def test_columns_of_other_trainers_are_recognised(trainer, tmp_path):
    policy, sampler = trainer.policy, trainer.sampler
    rows = [{policy: [-1.0], sampler: [-2.0], "advantages": 1.0, "response": "text", "prompt": "more text"}]
    dump, batch = only(jsonl(tmp_path / "dump.jsonl", rows))
    assert (dump.columns["policy_logp"], dump.columns["sampler_logp"]) == (policy, sampler)
    assert float(batch.tokens.policy_logp - batch.tokens.sampler_logp) == 1.0 and "response" not in dump.columns


def test_padding_is_left_out_by_the_mask_and_never_read(write):
    rows = [
        {"old_log_probs": [-1.0, math.nan, 0.0], "rollout_log_probs": [-1.5, -1e10, 0.0], "response_mask": [1, 0, 0]},
        {"old_log_probs": [-1.0, -1.0, -3.0], "rollout_log_probs": [-1.0, -1.0, -2.0], "response_mask": [0, 1, 1]},
        {"old_log_probs": [-1.0, -1.0, -3.0], "rollout_log_probs": [-1.0, -1.0, -2.0], "response_mask": [0, 0, 0]},
    ]
    dump, batch = only(write(rows))
    assert batch.tokens.policy_logp.tolist() == [-1.0, -1.0, -3.0]
    assert batch.tokens.response.tolist() == [0, 1, 1] and batch.tokens.num_responses == 3
    assert not any("left out" in note for note in dump.notes)


def test_masks_and_rewards_may_be_truth_values(write):
    rows = [
        {"policy_logp": [-1.0, -2.0], "sampler_logp": [-1.0, -2.0], "mask": [True, False], "reward": True, "group": 1},
        {"policy_logp": [-3.0], "sampler_logp": [-3.0], "mask": [True], "reward": False, "group": 1},
    ]
    _, batch = only(write(rows))
    assert batch.tokens.policy_logp.tolist() == [-1.0, -3.0] and batch.reward.tolist() == [1.0, 0.0]


def test_the_map_goes_before_what_is_recognised(tmp_path):
    rows = [{"policy_logp": [-1.0], "sampler_logp": [-2.0], "mine": [-5.0]}]
    path = jsonl(tmp_path / "dump.jsonl", rows)
    assert float(only(path, {"policy_logp": "mine"})[1].tokens.policy_logp) == -5.0
    with pytest.raises(InputError, match="no such column; there are mine, policy_logp"):
        read_dump(path, {"policy_logp": "theirs"})
    with pytest.raises(UnknownNameError, match="did you mean 'policy_logp'"):
        read_dump(path, {"policy_logps": "mine"})
    assert parse_mapping(["a=b", "c=d=e"]) == {"a": "b", "c": "d=e"}
    assert parse_mapping(["finish="]) == {"finish": ""}
    for wrong in ("a", "=b"):
        with pytest.raises(InputError, match="expected ours=theirs"):
            parse_mapping([wrong])


@pytest.mark.parametrize(
    ("columns", "mapping", "said"),
    [
        (
            ["policy_logp", "x"],
            None,
            "no column for sampler_logp: 'policy_logp' is there, policy_logp as lagproof has it, ",
        ),
        (["sampler_logp"], None, "no column for policy_logp: 'sampler_logp' is there"),
        (["action_log_probs"], None, "as OpenRLHF and SkyRL has it, and not rollout_log_probs or rollout_logprobs"),
        (["old_log_probs"], None, "--map policy_logp=old_log_probs --map sampler_logp=<column>"),
        (
            ["a", "b"],
            {"sampler_logp": "a"},
            "no column for policy_logp: only sampler_logp was named (a); there are a, b",
        ),
        (["a", "b"], None, "no column for policy_logp and sampler_logp: looked for policy_logp and sampler_logp; "),
    ],
)
def test_only_what_is_missing_is_said_to_be_missing(columns, mapping, said):
    with pytest.raises(InputError) as error:
        resolve(columns, mapping)
    assert said in str(error.value)


@pytest.mark.parametrize("layout", ["parquet", "jsonl"])
def test_text_is_not_taken_for_one_number_a_row(layout, tmp_path):
    rows = [{"policy_logp": "[-1.0, -2.0]", "sampler_logp": "[-1.0, -2.0]"}]
    path = tmp_path / f"dump.{layout}"
    parquet(path, as_columns(rows)) if layout == "parquet" else jsonl(path, rows)
    with pytest.raises(InputError, match=r"'policy_logp' is string: must hold numbers, or lists of them: lists that"):
        read_dump(path)


@pytest.mark.parametrize(("listed", "single"), [("policy_logp", "sampler_logp"), ("sampler_logp", "policy_logp")])
def test_a_number_a_response_is_no_number_a_token(listed, single, tmp_path):
    path = parquet(tmp_path / "dump.parquet", {listed: [[-1.0, -2.0]], single: [-3.0], "response": [0]})
    with pytest.raises(InputError, match=f"'{listed}' holds lists and column '{single}' one number a row"):
        read_dump(path)


def test_the_sampler_of_one_trainer_is_not_taken_for_that_of_another():
    assert resolve(["logprobs", "policy_logp", "sampler_logp"])["sampler_logp"] == "sampler_logp"
    with pytest.raises(InputError, match="no column for sampler_logp: 'old_log_probs' is there"):
        resolve(["logprobs", "old_log_probs"])


def test_missing_columns(tmp_path):
    with pytest.raises(InputError, match=r"no column for policy_logp and sampler_logp.*there are reward, text.*--map"):
        read_dump(jsonl(tmp_path / "dump.jsonl", [{"text": "x", "reward": 1.0}]))
    path = parquet(tmp_path / "dump.parquet", {"rollout_log_probs": [[-1.0]]})
    with pytest.raises(InputError, match=r"dump\.parquet: no column for policy_logp"):
        read_dump(path)
    with pytest.raises(InputError, match=r"no column for policy_logp:"):
        read_dump(path, {"sampler_logp": "rollout_log_probs"})


def test_unequal_lengths_name_the_row(write):
    rows = [ROWS[0], {**ROWS[1], "sampler_logp": [-1.0, -2.0, -3.0]}]
    with pytest.raises(InputError, match=r"row 1: column 'sampler_logp' has 3 values, 'policy_logp' has 1 \(1 of 2"):
        read_dump(write(rows))


def test_a_response_without_sampler_logp_is_missing_token_by_token(write):
    _, batch = only(write([ROWS[0], {**ROWS[1], "sampler_logp": None}]))
    assert batch.tokens.sampler_logp[:2].tolist() == [-1.5, -0.25] and batch.tokens.sampler_logp[2].isnan()


def test_nan_and_infinity_are_left_out_and_counted(tmp_path):
    row = '{"policy_logp": [-1.0, NaN, -Infinity, null, -2.0], "sampler_logp": [-1.5, -1, -1, -1, NaN]}\n'
    (tmp_path / "dump.jsonl").write_text(row)
    dump, batch = only(tmp_path / "dump.jsonl")
    assert lp.mismatch(batch.tokens)["d_bar"] == 0.5
    assert [doubt.sentence for doubt in dump.doubts] == [
        "4 of 5 tokens lack a finite log-probability and were left out (80%): nothing is known of them"
    ]


def test_bfloat16_is_noticed_on_either_side(tmp_path):
    logp = -torch.rand(4000, generator=torch.Generator().manual_seed(0)) * 3
    coarse = logp.bfloat16().float()
    for policy, sampler, warned in ((logp, coarse, "sampler"), (coarse, logp, "policy"), (logp, logp, None)):
        columns = {"policy_logp": [policy.numpy()], "sampler_logp": [sampler.numpy()]}
        notes = " ".join(read_dump(parquet(tmp_path / "dump.parquet", columns)).notes)
        assert ("rounded to bfloat16" in notes) is (warned is not None)
        assert warned is None or f"{warned}_logp was rounded" in notes


def test_zeros_are_no_sign_of_rounding(tmp_path):
    columns = {"policy_logp": [[0.0, 0.0]], "sampler_logp": [[-0.123456789, 0.0]]}
    assert not any("rounded" in note for note in read_dump(parquet(tmp_path / "dump.parquet", columns)).notes)


def test_half_precision_columns_can_be_read(tmp_path):
    half = np.array([-1.0, -2.0], dtype=np.float16)
    _, batch = only(parquet(tmp_path / "dump.parquet", {"policy_logp": [half], "sampler_logp": [half]}))
    assert batch.tokens.policy_logp.dtype == torch.float32


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"policy_logp": [[]], "sampler_logp": [[]]}, "not one token"),
        ({"policy_logp": [[math.nan]], "sampler_logp": [[-1.0]]}, "not one of 1 tokens has both"),
        ({"policy_logp": [[0.4, 0.5]], "sampler_logp": [[0.4, 0.5]]}, "above 0 on 2 of 2 tokens"),
        ({"policy_logp": [["a"]], "sampler_logp": [[-1.0]]}, "must hold numbers"),
        ({"policy_logp": ["a"], "sampler_logp": ["b"], "response": [0]}, "must hold numbers"),
        ({"policy_logp": [[-1.0]], "sampler_logp": [[-1.0]], "mask": [[2]]}, "values other than 0 and 1"),
        (
            {"policy_logp": [[-1.0] * 40], "sampler_logp": [[-1.0] * 40], "mask": [[0] * 40]},
            "leaves out all 40 tokens: nothing",
        ),
    ],
)
def test_tables_that_cannot_be_used(columns, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_dump(parquet(tmp_path / "dump.parquet", columns))


ROW = b'{"policy_logp": [-1], "sampler_logp": [-1]}\n'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "has no line"),
        (b"\n\n", "has no line"),
        (b"not json\n", "line 1 is not JSON"),
        (b"[1, 2]\n", "line 1 is list: must be an object"),
        (ROW * 30 + b'\n{"policy_logp": [}\n', "line 32 is not JSON: Expecting value at column 18"),
        (ROW * 30 + b'"\xff"\n', "line 31 is not UTF-8"),
        (
            ROW * 30 + b'{"policy_logp": ["x"]}\n',
            r"line 31: column 'policy_logp' is \['x'\]; must be a list of numbers",
        ),
        (ROW * 30 + b'{"policy_logp": -1}\n', "line 31: column 'policy_logp' is -1; must be a list of numbers"),
        (b'{"policy_logp": [-1], "sampler_logp"', "has no line|not JSON"),
    ],
)
def test_lines_that_cannot_be_used(body, message, tmp_path):
    (tmp_path / "dump.jsonl").write_bytes(body)
    with pytest.raises(InputError, match=message):
        read_dump(tmp_path / "dump.jsonl")


def test_a_last_line_that_is_cut_off_is_left_out_with_a_note(tmp_path):
    path = jsonl(tmp_path / "dump.jsonl", ROWS, end='\n{"policy_logp": [-1.0, -2')
    dump, batch = only(path)
    assert len(batch.tokens) == 3 and any("truncated" in note for note in dump.notes)
    whole = jsonl(tmp_path / "whole.jsonl", ROWS, end="")
    assert not any("truncated" in note for note in read_dump(whole).notes)


def test_responses_without_a_token_are_noted(tmp_path):
    rows = [*ROWS, {**ROWS[0], "policy_logp": [], "sampler_logp": []}]
    dump, batch = only(jsonl(tmp_path / "dump.jsonl", rows))
    assert len(batch.tokens) == 3
    assert f"1 of {len(rows)} responses have no token to look at, and count nowhere" in dump.notes


def test_the_folder_of_an_evaluation_is_no_dump(tmp_path):
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(InputError, match="holds an evaluation"):
        read_dump(tmp_path)


def test_damaged_and_missing_files(tmp_path):
    path = parquet(tmp_path / "dump.parquet", as_columns(ROWS))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"dump\.parquet: cannot be read"):
        read_dump(path)
    with pytest.raises(InputError, match="no such file"):
        read_dump(tmp_path / "nothing.parquet")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="neither parquet"):
        read_dump(tmp_path / "notes.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds neither parquet nor JSON lines"):
        read_dump(tmp_path / "empty")


def test_padding_without_a_mask_is_left_out_and_said_first(tmp_path):
    columns = {"policy_logp": [[-1.0, 0.0, 0.0]] * 4, "sampler_logp": [[-1.5, 0.0, 0.0]] * 4}
    dump = read_dump(parquet(tmp_path / "dump.parquet", columns))
    assert dump.num_tokens == 4 and dump.batches[0].tokens.response.tolist() == [0, 1, 2, 3]
    said = dump.doubts[0].sentence
    assert said.startswith("4 of 4 responses end with") and "8 tokens in all" in said and "--map mask=" in said


def test_responses_of_many_lengths_that_end_with_sure_tokens_are_not_padded(tmp_path):
    rows = [[-1.0] * n + [0.0, 0.0] for n in range(1, 9)]
    path = parquet(tmp_path / "dump.parquet", {"policy_logp": rows, "sampler_logp": rows})
    assert read_dump(path).num_tokens == sum(map(len, rows))


def test_steps_from_a_column_in_any_order(write):
    rows = [{**ROWS[0], "step": 2}, {**ROWS[1], "step": 1}, {**ROWS[1], "step": 2, "group": "b"}]
    dump = read_dump(write(rows))
    assert [batch.step for batch in dump.batches] == [1, 2]
    assert dump.batches[0].tokens.policy_logp.tolist() == [-2.0]
    second = dump.batches[1]
    assert second.tokens.policy_logp.tolist() == [-1.0, -0.5, -2.0] and second.tokens.response.tolist() == [0, 0, 1]
    assert len(set(second.tokens.group.tolist())) == 2 and second.version == 5


def test_steps_from_the_names_of_files(tmp_path):
    for number, row in ((10, ROWS[1]), (9, ROWS[0])):
        jsonl(tmp_path / f"{number}.jsonl", [row])
    dump = read_dump(tmp_path)
    assert [len(batch.tokens) for batch in dump.batches] == [2, 1]
    assert any("one optimiser step a file" in note for note in dump.notes)


def test_a_column_that_one_file_lacks_is_not_used(tmp_path):
    jsonl(tmp_path / "1.jsonl", [ROWS[0]])
    jsonl(tmp_path / "2.jsonl", [{k: v for k, v in ROWS[1].items() if k != "version"}])
    assert all(batch.version is None for batch in read_dump(tmp_path).batches)


def test_advantages_come_from_the_rewards_of_groups(tmp_path):
    rows = [
        {"policy_logp": [-1.0], "sampler_logp": [-1.0], "reward": r, "uid": u}
        for r, u in ((1.0, "x"), (0.9, "y"), (0.0, "x"), (0.9, "y"))
    ]
    dump, batch = only(jsonl(tmp_path / "dump.jsonl", rows))
    assert dump.advantage == "reward"
    assert batch.tokens.advantage.tolist() == pytest.approx([0.7071, 0.0, -0.7071, 0.0], abs=1e-3)
    bare, batch = only(jsonl(tmp_path / "bare.jsonl", [{k: v for k, v in row.items() if k != "uid"} for row in rows]))
    assert bare.advantage is None and batch.tokens.advantage.tolist() == [0.0] * 4
    assert any("no column group" in note for note in bare.notes)


def test_a_run_of_ours_reads_back(tmp_path):
    def sample(reward, ids, finish):
        return Sample([1, 2], ids, [4] * len(ids), finish, [-0.5] * len(ids), reward=reward)

    groups = [
        Group(7, "p7", [sample(1.0, [5, 6], Finish.STOP), sample(math.nan, [5], Finish.LENGTH)]),
        Group(8, "p8", [sample(0.0, [9], Finish.STOP), sample(1.0, [], Finish.STOP)]),
    ]
    (tmp_path / "rollouts").mkdir()
    for step in (6, 7):
        batch = replace(
            Batch.of(groups),
            policy_logp=torch.tensor([-1.0, -0.25, -2.0, -3.0]),
            advantage=torch.tensor([1.0, math.nan, -1.0, 0.5], dtype=torch.float64),
        )
        pq.write_table(record.table(batch, step), tmp_path / "rollouts" / f"step-{step:06d}.parquet")
    dump = read_dump(tmp_path)
    assert [(b.step, b.version) for b in dump.batches] == [(6, 5), (7, 6)]
    tokens = dump.batches[1].tokens
    assert tokens.num_responses == 4 and tokens.response.tolist() == [0, 0, 1, 2]
    assert dump.batches[1].truncated.tolist() == [False, True, False, False]
    got = lp.mismatch(tokens, 6)
    assert got["age/2/tokens"] == 3 and got["dropped_tokens"] == 1  # the response without a reward
    assert got["d_bar"] == pytest.approx((0.5 + 0.25 + 2.5) / 3)
    assert not any("learner_version" in note for note in dump.notes)


@pytest.mark.slow
def test_more_tokens_than_torch_has_quantiles_for(tmp_path):
    n = 2**24 + 1
    values = np.linspace(-3.0, -0.1, n, dtype=np.float32)
    values[-1] = -3.5  # one token with |d| of about 3.4
    lists = pa.LargeListArray.from_arrays([0, n], values)
    theirs = values.copy()
    theirs[-1] = -0.1
    columns = {"policy_logp": lists, "sampler_logp": pa.LargeListArray.from_arrays([0, n], theirs)}
    _, batch = only(parquet(tmp_path / "dump.parquet", columns))
    got = lp.mismatch(replace(batch.tokens, version=None))
    assert got["tokens"] == n and got["abs_d_q999"] == 0.0 and got["abs_d_max"] == pytest.approx(3.4)


def test_responses_whose_reward_is_missing_are_told(tmp_path):
    rows = [{**row, "reward": reward} for row, reward in zip([*ROWS, ROWS[1]], [1.0, 0.0, None], strict=True)]
    bare = [{key: value for key, value in row.items() if key != "advantage"} for row in rows]
    path = jsonl(tmp_path / "bare.jsonl", bare)
    said = "1 of 3 responses have no finite reward, so no advantage: their tokens count for the mismatch, and for "
    assert any(note.startswith(said) for note in read_dump(path).notes)
    assert whatif(path, ["naive"]).tokens == 3
    assert not any("reward" in note for note in read_dump(jsonl(tmp_path / "full.jsonl", rows)).notes)
