"""``deepfreeze show``: facts, tensors, and which rank wrote which bytes."""

import json
import time
from pathlib import Path

import pytest

from deepfreeze.cli import show
from deepfreeze.cli.main import main
from deepfreeze.inspect.writers import ShardTable, WrittenShard
from deepfreeze.store.run import Run
from tests.support import files

DATA = Path(__file__).resolve().parents[1] / "data" / "v1"  # runs of real models


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    files.write_checkpoint(path, 5, files.sample(world=1))
    files.write_checkpoint(path, 40, files.sample(extent=10000))
    return path


def test_it_shows_the_run_the_checkpoint_its_ranks_and_its_parts(run, capsys, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1795232158.0 + 120)
    assert main(["show", str(run)]) == 0
    out = capsys.readouterr().out.replace(str(run), "RUN")
    assert [line.rstrip() for line in out.splitlines()] == [
        "run         RUN",
        f"run id      {files.RUN_ID}, begun 2026-11-21 03:35:58 UTC",
        "step        40",
        "committed   2026-11-21 03:35:58 UTC, 2 min ago",
        f"attempt     {files.ATTEMPT}",
        "model file  RUN/step-0000000040/model.weights.h5, 20 kB",
        "layout      keras-h5, which stock Keras loads",
        "            (optimizer: after model.optimizer.build(model.trainable_variables))",
        "state       full",
        "written by  keras 3.15.1, tensorflow 2.21.0",
        "",
        "rank  wrote  ranges  its own",
        "   0  10 kB       1     16 B",
        "   1  10 kB       1     16 B",
        "",
        "part    kind    tensors    size",
        "empty   weight        1     0 B",
        "dense   weight        2  8.2 kB",
        "bn      weight        1    56 B",
        "seeds   seed          1    16 B",
        "in all                5  8.2 kB",
    ]


def test_json_has_everything(run, capsys):
    assert main(["show", f"{run}@40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == {"path": str(run), "run_id": files.RUN_ID, "created": files.CREATED, "parent": None}
    assert (found["checkpoint"]["step"], found["checkpoint"]["file_size"]) == (40, 20000)
    assert found["ranks"][1] == {"rank": 1, "nbytes": 10000, "extents": 1, "private": 16}
    tensors = {tensor["name"]: tensor for tensor in found["tensors"]}
    assert tensors["dense/kernel"] == {
        "name": "dense/kernel", "kind": "weight", "dtype": "float32", "shape": [50, 40], "role": "replicated", "nbytes": 8000,
        "path": "layers/vars/0", "offset": 4096,
        "written_by": [{"rank": 0, "start": 0, "stop": 5904}, {"rank": 1, "start": 5904, "stop": 8000}],
    }  # fmt: skip
    assert tensors["seed"]["written_by"] == [{"rank": rank, "start": 0, "stop": 16} for rank in (0, 1)]
    assert tensors["seed"]["offset"] is None and tensors["empty"]["written_by"] == []


@pytest.mark.parametrize(("world", "extent"), [(1, 20000), (1, 64), (2, 3000), (3, 4096), (5, 997)])
def test_every_byte_of_a_tensor_has_one_writer_and_it_is_the_right_one(tmp_path, world, extent):
    run = files.write_run(tmp_path / "run")
    made = files.sample(world, extent)
    files.write_checkpoint(run, 40, made)
    writer = {at + i: rank for rank, cuts in enumerate(made.extents) for at, n in cuts for i in range(n)}
    shards = ShardTable(Run.open(run), 40)
    for placed in shards.structure.tensors[:-1]:
        found = [shard.rank for shard in shards.of(placed) for _ in range(shard.start, shard.stop)]
        assert found == [writer[at] for at in range(placed.offset, placed.end)]
    assert shards.of(shards.structure.tensors[-1]) == [WrittenShard(rank, 0, 16) for rank in range(world)]


def test_a_pattern_picks_tensors_by_name(run, capsys):
    assert main(["show", str(run), "--tensor", "dense/*"]) == 0
    out = capsys.readouterr().out
    assert "dense/kernel" in out and "dense/bias" in out and "bn/mean" not in out
    assert main(["show", str(run), "--tensor", "*kernel", "--json"]) == 0
    assert [tensor["name"] for tensor in json.loads(capsys.readouterr().out)["tensors"]] == ["dense/kernel"]
    assert main(["show", str(run), "--tensor", "none*"]) == 1
    assert "no tensor's name matches none*" in capsys.readouterr().out


def test_each_tensor_has_its_kind_its_role_and_its_writers(run, capsys):
    assert main(["show", str(run), "--tensor", "*"]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()][-6:] == [
        "tensor        kind    dtype    shape   size  role        rank[bytes]",
        "empty         weight  float32  0x3      0 B  replicated  -",
        "dense/kernel  weight  float32  50x40   8 kB  replicated  0[0:5904] 1[5904:8000]",
        "dense/bias    weight  float32  40     160 B  replicated  1[0:160]",
        "bn/mean       weight  float64  7       56 B  rank-local  1[0:56]",
        "seed          seed    int64    2       16 B  per-rank    each rank its own",
    ]


@pytest.mark.parametrize("side", ["keras", "tf_keras"])
def test_parts_have_the_layers_names_and_a_kind(side, capsys):
    """Of a real model, without the model's own name."""
    assert main(["show", str(DATA / side / "run")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.partition("\npart ")[2].splitlines()[1:]]
    kinds = [(row[0], row[1]) for row in rows[:-1]]
    assert kinds[:3] == [("batch_normalization", "weight"), ("dense", "weight"), ("dense_1", "weight")]
    assert ("optimizer", "optimizer") in kinds and rows[-1][:2] == ["in", "all"]
    assert ("metrics", "metric") in kinds or side == "keras"


def test_the_largest_parts_and_the_sum_are_shown_unless_asked_for(run, capsys, monkeypatch):
    monkeypatch.setattr(show, "_LARGEST", 2)
    assert main(["show", str(run)]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()][-5:] == [
        "part               kind    tensors    size",
        "dense              weight        2  8.2 kB",
        "bn                 weight        1    56 B",
        "2 smaller (--all)                2    16 B",
        "in all                           5  8.2 kB",
    ]
    assert main(["show", str(run), "--all"]) == 0
    out = capsys.readouterr().out
    assert "\nempty " in out and "\nseeds " in out and "smaller" not in out


def test_a_seeded_run_says_what_it_was_seeded_from(run, capsys, monkeypatch):
    parent = {"path": "/runs/base", "run_id": "ab" * 16, "step": 7, "attempt": "cd" * 16}
    value = {"format": 1, "run_id": files.RUN_ID, "created": files.CREATED, "parent": parent}
    (run / "run.json").write_text(json.dumps(value))
    assert main(["show", str(run)]) == 0
    assert "seeded from  /runs/base@7" in capsys.readouterr().out
    monkeypatch.chdir("/")
    assert main(["show", str(run)]) == 0
    assert "seeded from  runs/base@7" in capsys.readouterr().out
    assert main(["show", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["parent"] == parent


def test_no_value_is_read_and_a_damaged_record_is_named(run, capsys):
    (run / "step-0000000040" / files.MODEL_FILE).unlink()
    assert main(["show", str(run)]) == 0
    files.flip(run / "step-0000000040" / "rank-00001.record", 150)
    capsys.readouterr()
    assert main(["show", str(run)]) == 1
    assert "rank-00001.record: expected CRC32C" in capsys.readouterr().err


ENGINE = {
    "waits": 2, "wait_s": 0.25, "looks": 9, "pauses": 1, "pause_s": 1.5,
    "external": {"direct_bytes": 4_000_000, "cached_bytes": 512, "syncs": 6},
    "local": {"direct_bytes": 0, "cached_bytes": 4_000_000, "syncs": 1},
    "threads": {"df-commit": 0.004, "df-writer": 0.125},
}  # fmt: skip


def events(run, attempt, *engines):
    """The file of an attempt that began at second ``attempt`` and counted ``engines``."""
    name = f"{attempt:032x}"
    lines = [{"v": 1, "t": attempt * 10**9, "m": 0, "kind": "attempt", "step": 0, "attempt": name}]
    lines += [{"v": 1, "t": attempt * 10**9 + 5, "m": 1, "kind": "counted", "engine": engine} for engine in engines]
    (run / "events").mkdir(exist_ok=True)
    (run / "events" / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return name


def test_engine_shows_the_counts_of_the_newest_attempt(run, capsys):
    events(run, 7, {"waits": 99})
    name = events(run, 8, ENGINE)
    assert main(["show", str(run), "--engine"]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        f"attempt  {name}, rank 0's engine until its end",
        "",
        "training waited for memory: 2 times, 0.250 s",
        "pauses between looks: 1 time, 1.500 s",
        "looks at the store: 9",
        "",
        "calls and bytes  external  local",
        "direct bytes         4 MB    0 B",
        "cached bytes        512 B   4 MB",
        "syncs                   6      1",
        "",
        "thread     CPU time",
        "df-commit   0.004 s",
        "df-writer   0.125 s",
    ]
    assert main(["show", str(run), "--engine", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"attempt": name, "engine": ENGINE}


def test_a_newest_attempt_without_counts_is_named(run, capsys):
    events(run, 7, ENGINE)
    name = events(run, 8)
    assert main(["show", str(run), "--engine"]) == 1
    assert f"the newest attempt ({name}) has no counts" in capsys.readouterr().out
    assert main(["show", str(run), "--engine", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"attempt": name, "engine": None}


def test_counts_of_a_later_version_are_shown_as_far_as_they_are_known(run, capsys):
    events(run, 7, {"external": {"leaps": 3}, "elsewhere": {"syncs": 1}, "threads": "many"}, "not counted")
    assert main(["show", str(run), "--engine"]) == 0
    out = capsys.readouterr().out
    assert "leaps" in out and "elsewhere" not in out and "training waited for memory: 0 times, -" in out


@pytest.mark.parametrize("api", ["keras", "tf_keras"])
def test_it_says_the_line_without_which_keras_loads_no_optimizer(api, capsys):
    """Stock Keras leaves out the variables of an optimizer that is not built; Keras 3 warns of it."""
    assert main(["show", str(DATA / api / "run")]) == 0
    assert "(optimizer: after model.optimizer.build(model.trainable_variables))" in capsys.readouterr().out


def test_weights_alone_need_no_such_line(tmp_path, capsys):
    files.write_checkpoint(files.write_run(tmp_path), 5, files.sample(state="weights"))
    assert main(["show", str(tmp_path)]) == 0
    assert "optimizer.build" not in capsys.readouterr().out
