"""What a training has said of its checkpoints: position, logs and the user's own facts, as ``show`` and ``ls`` print them."""

import json

import pytest

from deepfreeze.cli.main import main
from tests.support import files

SAID = {
    "position": {"batch": 10, "batches": 30, "epoch": 1, "epochs": 4, "fit": 0, "trained": 40},
    "logs": {"epoch": 1, "values": {"loss": 0.5, "mae": 0.25}},
    "metadata": {"git": "3f2c1ab", "note": "a lower rate"},
    "from the future": [1],
}


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    files.write_checkpoint(path, 20, files.sample(world=1, version=2))
    files.write_checkpoint(path, 40, files.sample(world=1, version=2), said=SAID)
    return path


def test_show_prints_it(run, capsys):
    assert main(["show", str(run)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    at = lines.index("metrics epoch 1: loss 0.5, mae 0.25")
    wanted = ["position epoch 2 of 4, batch 10 of 30", "metadata git: 3f2c1ab", "note: a lower rate"]
    assert lines[at + 1 : at + 4] == wanted
    assert main(["show", f"{run}@20"]) == 0
    assert "\nposition" not in capsys.readouterr().out


def test_ls_prints_it_where_there_is_room(run, capsys, monkeypatch):
    assert main(["ls", str(run)]) == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[-2:] == ["metrics", "metadata"]
    assert first.rstrip().endswith("keras 3.15.1")
    assert second.endswith("epoch 1: loss 0.5, mae 0.25  git 3f2c1ab, note a lower rate")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["ls", str(run)]) == 0
    narrow = capsys.readouterr().out
    assert "metadata" not in narrow and max(map(len, narrow.splitlines())) <= 80


def test_json_has_all_of_it(run, capsys):
    assert main(["ls", str(run), "--json"]) == 0
    assert [one["values"] for one in json.loads(capsys.readouterr().out)] == [{"from the future": "}"}, SAID]
