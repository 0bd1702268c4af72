"""Which checkpoints a run has."""

import shutil

import pytest

from deepfreeze.core.errors import NotFoundError
from deepfreeze.core.run import Run
from deepfreeze.thaw.locate import checkpoints, choose, latest
from tests.support import files


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
