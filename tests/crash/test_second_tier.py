"""A job crashes, and the nodes' local tier is lost with it: a start finds the shards in the second directory of another tier."""

import shutil

import pytest

import veloc_bindings as vb
from deepfreeze.store.run import Run
from deepfreeze.tiers import tiers
from tests.support import restart
from tests.support.ranks import check_checkpoint, options, ranks
from tests.support.second_directory import SecondDirectory

pytestmark = pytest.mark.crash
FAULT = "kill-before:rename:step-0000000020.partial:1"


@pytest.fixture
def crashed(tmp_path, library, monkeypatch):
    """The second tier, after a job of two ranks: step 10 is committed; of step 20 each rank has a whole slot, a copy of it is kept, and
    the ranks are killed in its commit. The first directory is gone, as with the nodes."""
    second = SecondDirectory(tmp_path / "first", tmp_path / "second")
    monkeypatch.setattr(tiers, "TIERS", {"second": lambda: second})
    tier, place = tiers.choose("auto", 1 << 20)
    assert tier is second
    place.mkdir()
    second.second.mkdir(mode=0o700)
    restart.make_run(tmp_path / "run")
    with ranks(library, FAULT, FAULT) as group:
        for number, rank in enumerate(group):
            rank.ask("open", **options(tmp_path, number, 2, local_dir=str(place)))
            rank.ask("submit", step=10)
        for rank in group:
            rank.ask("drain")
        for rank in group:
            rank.send("submit", step=20).send("wait", step=20, level=vb.LOCAL)
        for rank in group:
            rank.process.wait(120)  # each dies when its slot is whole and its record about to get its name
    second.keep()
    shutil.rmtree(place)
    return second


def slots(second):
    return sorted(second.second.rglob("*.slot"))


def committed(tmp_path):
    run = Run.open(tmp_path / "run")
    assert not run.partials()
    for step in run.committed():
        assert check_checkpoint(run.step_path(step)) == (step, 1)
    return run.committed()


def test_a_start_commits_what_the_second_directory_has(crashed, tmp_path):
    assert slots(crashed)
    done = restart.reopen(tmp_path, 2, local="auto")
    assert [step for step, _ in done.committed] == [20] and committed(tmp_path) == [10, 20]
    assert not slots(crashed), "cleared when no slot is needed any more"
    order = [name for name in dict.fromkeys(crashed.calls) if name != "discard"]
    assert order == ["need", "leftovers", "rescue", "clear"]
    assert restart.reopen(tmp_path, 1, local="auto").committed == []


def test_a_copy_that_is_torn_is_no_shard_and_the_older_step_stays(crashed, tmp_path):
    for slot in slots(crashed):
        if "rank-00001" in slot.name:
            data = bytearray(slot.read_bytes())
            data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
            slot.write_bytes(data)
    restart.reopen(tmp_path, 2, local="auto")
    assert committed(tmp_path) == [10]


def test_without_its_row_the_shards_are_not_found(crashed, tmp_path, monkeypatch):
    monkeypatch.setattr(tiers, "TIERS", {})
    restart.reopen(tmp_path, 2, local="auto")
    assert committed(tmp_path) == [10] and slots(crashed)
