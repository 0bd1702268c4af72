"""``deepfreeze prune``: a dry run first. What it deletes is tested in tests/store/test_prune.py."""

import json

import pytest

import deepfreeze
from deepfreeze.cli.main import main
from deepfreeze.store import durable
from deepfreeze.store.lock import Lock
from deepfreeze.store.writable_run import WritableRun
from tests.support import files


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    for step in (5, 10, 40):
        files.write_checkpoint(path, step)
    return path


def steps(run):
    return [info.step for info in deepfreeze.checkpoints(run)]


def test_without_yes_it_says_what_would_go_and_nothing_does(run, capsys):
    assert main(["prune", str(run), "--keep", "1"]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "step  what         size",
        "   5  checkpoint  21 kB",
        "  10  checkpoint  21 kB",
        "step 40 stays: newest",
        f"{run}: would delete 2 checkpoints and free 42 kB (--yes does it); 1 kept: step 40",
    ]
    assert steps(run) == [5, 10, 40]


def test_metrics_that_are_lost_are_named_once(run, capsys):
    (run / "marks.json").write_bytes(b"torn")
    for more in ([], ["--yes"]):
        assert main(["prune", str(run), "--keep", "1", *more]) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"deepfreeze: {run}/marks.json: ") and "metrics of earlier checkpoints" in line
        (run / "marks.json").write_bytes(b"torn")


def test_with_yes_it_is_done_and_the_bytes_are_counted(run, capsys):
    assert main(["prune", str(run), "--keep", "1", "--every", "10", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{run}: 1 checkpoint deleted, 21 kB freed; 2 kept: step 10, 40"
    assert steps(run) == [10, 40]
    assert main(["prune", str(run), "--keep", "2", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "step 10 stays: newest 2",
        "step 40 stays: newest 2",
        f"{run}: nothing to delete; 2 kept: step 10, 40",
    ]


def test_json_says_all_of_it(run, capsys):
    WritableRun.open(run).quarantine(5)
    assert main(["prune", str(run), "--keep", "1", "--damaged", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["done"], found["keep"], found["left"], len(found["delete"])) == (False, [40], [], 2)
    assert [(item["what"], item["step"]) for item in found["delete"]] == [("checkpoint", 10), ("damaged", 5)]
    assert found["freed"] == sum(item["nbytes"] for item in found["delete"])
    assert main(["prune", str(run), "--keep", "1", "--damaged", "--json", "--yes"]) == 0
    assert json.loads(capsys.readouterr().out) == {**found, "done": True}
    assert steps(run) == [40]


def test_a_locked_run_is_refused_and_a_dry_run_of_it_is_not(run, capsys):
    """Pruning a locked run is refused, naming the holder; a dry run is not refused."""
    with Lock.acquire(run) as lock:
        assert main(["prune", str(run), "--keep", "1", "--yes"]) == 1
        assert f"pid {lock.holder['pid']} on {lock.holder['host']}" in capsys.readouterr().err
        assert main(["prune", str(run), "--keep", "1"]) == 0
    assert steps(run) == [5, 10, 40]


def test_what_could_not_be_deleted_is_exit_code_1(run, capsys, monkeypatch):
    monkeypatch.setattr(durable, "delete", lambda path: None)
    assert main(["prune", str(run), "--keep", "2", "--yes"]) == 1
    out = capsys.readouterr().out
    assert "0 checkpoints deleted, 0 B freed" in out and "the next start tries again: " in out


@pytest.mark.parametrize(
    "arguments", [[], ["--keep", "0"], ["--keep", "-1"], ["--keep", "x"], ["--keep", "1", "--every", "0"]]
)
def test_keeping_none_is_a_wrong_command_line(run, arguments):
    with pytest.raises(SystemExit) as caught:
        main(["prune", str(run), *arguments])
    assert caught.value.code == 2 and steps(run) == [5, 10, 40]


def test_no_run_is_exit_code_1(tmp_path, capsys):
    assert main(["prune", str(tmp_path), "--keep", "1", "--yes"]) == 1
    assert "expected a run" in capsys.readouterr().err
