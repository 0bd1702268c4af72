"""``deepfreeze diff``: right figures, also where there are none."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from deepfreeze.cli.main import main
from deepfreeze.format.structure import Placed
from deepfreeze.format.tensors import REPLICATED, TensorSpec
from deepfreeze.inspect import diff as diff_module
from deepfreeze.inspect.diff import compare, diff
from tests.support import files

DATA = Path(__file__).resolve().parents[1] / "data" / "v1"  # runs of real models
NAN, INF = math.nan, math.inf


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    made = files.sample()
    files.write_checkpoint(path, 30, made)
    files.write_checkpoint(path, 35, made)
    content = bytearray(made.content)
    bias = made.values["dense/bias"].copy()
    bias[3] += 1
    content[12200 : 12200 + bias.nbytes] = bias.tobytes()
    made.content = bytes(content)
    files.write_checkpoint(path, 40, made)
    return path


def measured(first, second, dtype="float32"):
    a, b = (np.array(values, dtype) for values in (first, second))
    return compare(Placed(TensorSpec("t", dtype, a.shape, REPLICATED), "t", 0), a, b)


@pytest.mark.parametrize(
    ("first", "second", "differing", "nonfinite", "largest", "relative"),
    [
        ([1, -4, 2], [1, -4, 3], 1, 0, 1, 0.25),
        ([0, 0], [0, 2], 1, 0, 2, INF),
        ([1, 2], [3, 5], 2, 0, 3, 1.5),
        ([NAN, 1], [NAN, 2], 1, 0, 1, 1),
        ([INF, 1], [INF, 2], 1, 0, 1, 1),
        ([1, 2], [NAN, 2], 1, 1, INF, INF),
        ([INF, 2], [-INF, 3], 2, 1, INF, INF),
        ([INF], [1], 1, 1, INF, INF),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("piece", [1, 2, 1 << 18])
def test_figures_are_as_defined(monkeypatch, first, second, differing, nonfinite, largest, relative, dtype, piece):
    monkeypatch.setattr(diff_module, "_BLOCK", piece)
    change = measured(first, second, dtype)
    assert (change.differing, change.nonfinite, change.size) == (differing, nonfinite, len(first))
    assert (change.largest, change.relative) == (largest, relative)


@pytest.mark.parametrize(
    ("first", "dtype"),
    [([1, NAN, INF], "float32"), ([0.0], "float64"), ([], "float32"), ([2**63 - 1], "int64"), ([True], "bool")],
)
def test_what_is_the_same_is_no_change(first, dtype):
    assert measured(first, first, dtype) is None
    assert measured([0.0], [-0.0], "float32") is None


@pytest.mark.parametrize(
    ("first", "second", "dtype", "largest"),
    [([True], [False], "bool", 1), ([3], [250], "uint8", 247), ([2**63 - 1], [2**63 - 2], "int64", 1),
     ([2**64 - 1], [0], "uint64", 2.0**64), ([-(2**63)], [2**63 - 1], "int64", 2.0**64)],
)  # fmt: skip
def test_whole_numbers_do_not_wrap_around(first, second, dtype, largest):
    assert measured(first, second, dtype).largest == largest


@pytest.mark.filterwarnings("error")
def test_doubles_further_apart_than_a_double_can_say_are_infinitely_far():
    change = measured([1.7e308], [-1.7e308], "float64")
    assert (change.largest, change.relative, change.nonfinite) == (INF, INF, 0)


def test_bfloat16_is_compared_by_its_values():
    bits = np.array([0x3F80, 0x4000, 0x7FC0], "<u2")  # 1, 2, NaN
    other = np.array([0x3F80, 0x4040, 0x7FC1], "<u2")  # 1, 3, NaN
    spec = TensorSpec("t", "bfloat16", (3,), REPLICATED)
    change = compare(Placed(spec, "t", 0), bits, other)
    assert (change.differing, change.largest, change.relative) == (1, 1, 0.5)


def test_the_same_values_are_said_to_be_the_same(run, capsys):
    assert main(["diff", f"{run}@30", f"{run}@35"]) == 0
    more = " (--all: also the optimizers)"
    assert capsys.readouterr().out == f"{run}@30 and {run}@35 are identical: 4 weights, none changed{more}\n"
    assert main(["diff", "--exit-code", "--all", f"{run}@30", f"{run}@35"]) == 0
    assert capsys.readouterr().out == f"{run}@30 and {run}@35 are identical: 5 tensors, none changed\n"


def test_changes_are_listed_with_their_figures(run, capsys):
    assert main(["diff", f"{run}@30", str(run)]) == 0
    bias = files.sample().values["dense/bias"]
    relative = f"{(np.float64(bias[3] + np.float32(1)) - bias[3]) / np.abs(bias).max():.3g}"
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        f"{run}@30 and {run}@40: 1 weight changed, 3 identical (--all: also the optimizers)",
        "weight      relative  largest  differing  of",
        f"dense/bias  {relative:>8}        1          1  40",
    ]
    assert main(["diff", "--exit-code", f"{run}@30", str(run)]) == 3


def test_the_largest_relative_changes_come_first(tmp_path, capsys):
    run = files.write_run(tmp_path / "nt3")
    files.write_checkpoint(run, 1, files.sample(seed=1))
    files.write_checkpoint(run, 2, files.sample(seed=2))
    found = diff((run, 1), (run, 2), everything=True)
    assert [change.relative for change in found.changed] == sorted((c.relative for c in found.changed), reverse=True)
    assert {change.name for change in found.changed} == {"dense/kernel", "dense/bias", "bn/mean", "seed"}
    assert main(["diff", f"{run}@1", f"{run}@2", "--all", "--top", "1"]) == 0
    out = capsys.readouterr().out
    assert found.changed[0].name in out and found.changed[1].name not in out and "and 3 more (--top)" in out


def test_weights_are_compared_by_default_and_all_tensors_on_demand(tmp_path, capsys):
    run = files.write_run(tmp_path / "nt3")
    made = files.sample()
    files.write_checkpoint(run, 1, made)
    made.seeds[0] = made.seeds[0] + 1
    files.write_checkpoint(run, 2, made)
    assert main(["diff", f"{run}@1", f"{run}@2", "--exit-code"]) == 0
    assert "identical" in capsys.readouterr().out
    assert main(["diff", f"{run}@1", f"{run}@2", "--exit-code", "--all", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["compared"], found["identical"], found["changed"][0]["name"]) == ("all", False, "seed")


def test_a_keras_3_run_and_a_tf_keras_run_of_one_model_are_compared(capsys):
    assert main(["diff", str(DATA / "keras" / "run"), str(DATA / "tf_keras" / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["changed"]), found["unlike"], found["only_first"], found["only_second"]) == (8, [], [], [])
    names = {(one["name"], one["second_name"], one["label"]) for one in found["changed"]}
    assert ("sequential/dense_1/kernel", "dense_1/kernel", "dense_1/kernel") in names


def test_models_without_a_common_weight_are_said_to_be_so(run, tmp_path, capsys):
    other = files.write_run(tmp_path / "other")
    made = files.sample()
    made.structure = (
        made.structure.replace(b"layers/", b"other/")
        .replace(b"dense/", b"a/")
        .replace(b"bn/", b"b/")
        .replace(b'"empty"', b'"none"')
    )
    files.write_checkpoint(other, 40, made)
    assert main(["diff", str(run), str(other), "--top", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{run}@40 and {other}@40 have no weight in common",
        f"only in {run}@40: empty",
        "and 3 more (--top)",
        f"only in {other}@40: none",
        "and 3 more (--top)",
    ]


def test_other_tensors_and_other_kinds_are_named(tmp_path, capsys):
    run = files.write_run(tmp_path / "nt3")
    made = files.sample()
    files.write_checkpoint(run, 1, made)
    value = json.loads(made.structure)
    for tensor in value["tensors"]:
        if tensor["name"] == "dense/bias":
            tensor.update(shape=[8, 5])
        if tensor["name"] == "bn/mean":
            tensor.update(name="bn/variance")
    made.structure = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    files.write_checkpoint(run, 2, made)
    assert main(["diff", f"{run}@1", f"{run}@2", "--exit-code"]) == 3
    out = capsys.readouterr().out
    assert "another kind: dense/bias: float32 [40] and float32 [8, 5]" in out
    assert f"only in {run}@1: bn/mean" in out and f"only in {run}@2: bn/variance" in out
    assert main(["diff", f"{run}@1", f"{run}@2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["identical"], found["same"], found["changed"]) == (False, 2, [])
    assert (found["only_first"], found["only_second"]) == (["bn/mean"], ["bn/variance"])
    (unlike,) = found["unlike"]
    assert (unlike["name"], unlike["first"], unlike["second"]) == ("dense/bias", "float32 [40]", "float32 [8, 5]")


def test_json_has_every_change_and_null_for_infinity(run, capsys, monkeypatch):
    assert main(["diff", f"{run}@30", f"{run}@40", "--json", "--top", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["first"]["step"], found["second"]["step"], found["same"]) == (30, 40, 3)
    (change,) = found["changed"]
    assert change["name"] == "dense/bias" and change["differing"] == 1 and change["shape"] == [40]
    made = files.sample()
    content = bytearray(made.content)
    content[12200:12204] = np.float32(np.nan).tobytes()
    made.content = bytes(content)
    files.write_checkpoint(run, 50, made)
    assert main(["diff", f"{run}@30", f"{run}@50", "--json"]) == 0
    (change,) = json.loads(capsys.readouterr().out)["changed"]
    assert (change["largest"], change["relative"], change["nonfinite"]) == (None, None, 1)


@pytest.mark.parametrize("side", [0, 1])
def test_damage_in_either_is_exit_code_1(run, capsys, side):
    files.flip(run / f"step-00000000{(30, 40)[side]}" / files.MODEL_FILE, 4100)
    assert main(["diff", "--exit-code", f"{run}@30", f"{run}@40"]) == 1
    assert "dense/kernel" in capsys.readouterr().err
    assert main(["diff", f"{run}@30", f"{run}@31"]) == 1
