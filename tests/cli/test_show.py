"""``deepfreeze show``: facts, tensors, and which rank wrote which bytes."""

import json

import pytest

from deepfreeze.cli import show
from deepfreeze.cli.main import main
from deepfreeze.inspect.writers import ShardTable, WrittenShard
from deepfreeze.store.run import Run
from tests.support import files


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    files.write_checkpoint(path, 5, files.sample(world=1))
    files.write_checkpoint(path, 40, files.sample(extent=10000))
    return path


def test_it_shows_the_run_the_checkpoint_its_ranks_and_its_tensors(run, capsys):
    assert main(["show", str(run)]) == 0
    out = capsys.readouterr().out.replace(str(run), "RUN")
    assert [line.rstrip() for line in out.splitlines()] == [
        f"run         RUN ({files.RUN_ID}), begun 2026-11-21 03:35:58 UTC",
        "step        40",
        f"committed   2026-11-21 03:35:58 UTC by attempt {files.ATTEMPT}",
        "model file  RUN/step-0000000040/model.weights.h5, 20.0 kB",
        "layout      keras-h5, which stock Keras loads",
        "state       full",
        "written by  keras 3.15.1 tensorflow 2.21.0",
        "",
        "rank    wrote  ranges   its own",
        "   0  10.0 kB       1  16 bytes",
        "   1  10.0 kB       1  16 bytes",
        "",
        "tensor        dtype    shape  role             size  written by rank[bytes]",
        "empty         float32  0x3    replicated    0 bytes  -",
        "dense/kernel  float32  50x40  replicated     8.0 kB  0[0:5904] 1[5904:8000]",
        "dense/bias    float32  40     replicated  160 bytes  1[0:160]",
        "bn/mean       float64  7      rank-local   56 bytes  1[0:56]",
        "seed          int64    2      per-rank     16 bytes  each rank its own",
    ]


def test_json_has_everything(run, capsys):
    assert main(["show", f"{run}@40", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == {"path": str(run), "run_id": files.RUN_ID, "created": files.CREATED, "parent": None}
    assert (found["checkpoint"]["step"], found["checkpoint"]["file_size"]) == (40, 20000)
    assert found["ranks"][1] == {"rank": 1, "nbytes": 10000, "extents": 1, "private": 16}
    tensors = {tensor["name"]: tensor for tensor in found["tensors"]}
    assert tensors["dense/kernel"] == {
        "name": "dense/kernel", "dtype": "float32", "shape": [50, 40], "role": "replicated", "nbytes": 8000,
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


def test_many_tensors_are_summed_up_unless_asked_for(run, capsys, monkeypatch):
    monkeypatch.setattr(show, "_LISTED", 3)
    assert main(["show", str(run)]) == 0
    out = capsys.readouterr().out
    assert "layers/vars" in out and "5 tensors in all; --tensor '*' lists them" in out and "dense/kernel" not in out
    assert main(["show", str(run), "--tensor", "*"]) == 0
    assert "dense/kernel" in capsys.readouterr().out


def test_a_seeded_run_says_what_it_was_seeded_from(run, capsys):
    parent = {"path": "/runs/base", "run_id": "ab" * 16, "step": 7, "attempt": "cd" * 16}
    value = {"format": 1, "run_id": files.RUN_ID, "created": files.CREATED, "parent": parent}
    (run / "run.json").write_text(json.dumps(value))
    assert main(["show", str(run)]) == 0
    assert "seeded from  /runs/base@7" in capsys.readouterr().out
    assert main(["show", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["parent"] == parent


def test_no_value_is_read_and_a_damaged_record_is_named(run, capsys):
    (run / "step-0000000040" / files.MODEL_FILE).unlink()
    assert main(["show", str(run)]) == 0
    files.flip(run / "step-0000000040" / "rank-00001.record", 150)
    capsys.readouterr()
    assert main(["show", str(run)]) == 1
    assert "rank-00001.record: expected CRC32C" in capsys.readouterr().err
