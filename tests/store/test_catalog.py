"""Which checkpoints a run has."""

import shutil

import pytest

import deepfreeze
from deepfreeze.errors import NotFoundError
from deepfreeze.store.catalog import checkpoints, choose, latest
from deepfreeze.store.run import Run
from tests.support import files, restart


def test_checkpoints_are_listed_oldest_first_with_what_is_known_of_them(tmp_path):
    files.write_run(tmp_path)
    made = files.sample(world=3)
    files.write_checkpoint(tmp_path, 30, made)
    folder, _ = files.write_checkpoint(tmp_path, 5, made)
    files.write_partial(tmp_path, 40, made)
    infos = checkpoints(tmp_path)
    assert [info.step for info in infos] == [5, 30]
    info = infos[0]
    assert (info.run, info.path, info.level, info.world_size) == (tmp_path, folder, "external", 3)
    assert info.nbytes == 20000 + 3 * 16
    assert (info.created, info.attempt, info.structure) == (files.CREATED, files.ATTEMPT, made.hash)
    assert (info.state, info.framework["keras"]) == ("full", "3.15.1")
    assert latest(str(tmp_path)).step == 30


def test_a_run_without_checkpoints_has_none(tmp_path):
    files.write_run(tmp_path)
    assert checkpoints(tmp_path) == []
    assert latest(tmp_path) is None
    files.write_partial(tmp_path, 40, files.sample())
    with pytest.raises(NotFoundError, match="1 unfinished"):
        choose(Run.open(tmp_path), None)


def test_a_directory_that_is_no_run_is_not_found(tmp_path):
    with pytest.raises(NotFoundError):
        checkpoints(tmp_path)


def test_a_lost_structure_does_not_hide_a_checkpoint(tmp_path):
    files.write_run(tmp_path)
    files.write_checkpoint(tmp_path, 5)
    shutil.rmtree(tmp_path / "structures")
    assert [(info.step, info.state) for info in checkpoints(tmp_path)] == [(5, "unknown")]


@pytest.mark.parametrize("action", ["latest", "read", "restart"])
def test_the_newest_checkpoint_costs_the_same_however_many_there_are(tmp_path, opened, action):
    """Counted: files opened with 3 checkpoints in the run, and with 30."""
    made = files.sample()
    counts = []
    for many in (3, 30):
        place = tmp_path / str(many)
        place.mkdir()
        run = files.write_run(place / "run")
        for step in range(many):
            files.write_checkpoint(run, step, made)
        opened.clear()
        if action == "latest":
            assert latest(run).step == many - 1
        elif action == "read":
            deepfreeze.read(run).close()
        else:
            restart.reopen(place, 1)
        counts.append(len(opened))
    assert counts[0] == counts[1] < 40


def test_all_checkpoints_are_listed_by_one_look_at_each(tmp_path, opened):
    run = files.write_run(tmp_path / "run")
    made = files.sample()
    for step in range(20):
        files.write_checkpoint(run, step, made)
    opened.clear()
    assert len(checkpoints(run)) == 20
    assert sum(path.endswith("manifest.json") for path in opened) == 20, "each manifest once"
    assert sum("structures" in path for path in opened) == 1, "the structure that they share once"
