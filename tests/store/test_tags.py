"""Tags: names for checkpoints, made while a job runs."""

from __future__ import annotations

import contextlib
import os
import shutil

import pytest

import deepfreeze
from deepfreeze.errors import CorruptError, NotFoundError, OptionError, RunError
from deepfreeze.format.marks import MarksFile
from deepfreeze.store import durable
from deepfreeze.store.lock import Lock
from deepfreeze.store.marks import Marks
from deepfreeze.store.prune import prune
from deepfreeze.store.run import Run
from deepfreeze.store.tags import TagFile, read_marks, tag, tagged_step, tags, untag
from deepfreeze.store.writable_run import WritableRun
from tests.support import files

LOOKS = 5  # at the tags by one prune, at most


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    for step in (5, 10, 40):
        files.write_checkpoint(path, step)
    return Run.open(path)


def test_a_tag_names_one_checkpoint_also_while_a_job_has_the_run(run):
    with Lock.acquire(run.path):
        made = tag(run, 10, "paper")
    assert made == TagFile(files.RUN_ID, 10, files.ATTEMPT) and tags(run) == {"paper": made}
    assert tagged_step(run, "paper") == 10
    assert tag(run, 10, "paper") == made  # once more
    with deepfreeze.read(run.path, "paper") as tensors:
        assert tensors.info.step == 10


def test_a_tag_that_another_checkpoint_has_is_refused(run):
    tag(run, 10, "paper")
    with pytest.raises(RunError, match=r"expected a new tag; found step 10 has it.*untag .*nt3@paper"):
        tag(run, 40, "paper")
    assert untag(run, "paper").step == 10
    assert tag(run, 40, "paper").step == 40 and tagged_step(run, "paper") == 40


@pytest.mark.parametrize("name", ["a/b", "40", "", ".hidden", "-x", "a b", "a@b", "a\n", "ä", "x" * 201, "..", None])
def test_a_name_that_can_not_be_a_tag_is_refused(run, name):
    with pytest.raises(OptionError, match="tag: expected a name of letters"):
        tag(run, 10, name)
    assert not (run.path / "tags").exists()


def test_what_is_not_there_is_said(run):
    with pytest.raises(NotFoundError, match=r"a checkpoint of step 11; found steps 5, 10, 40"):
        tag(run, 11, "paper")
    with pytest.raises(NotFoundError, match=r"a tag papper; found paper"):
        tag(run, 10, "paper")
        tagged_step(run, "papper")
    with pytest.raises(NotFoundError, match=r"a tag 40x; found paper"):
        untag(run, "40x")


def test_a_tag_whose_checkpoint_is_gone_says_so(run):
    tag(run, 10, "paper")
    shutil.rmtree(run.path / "step-0000000010")
    files.write_checkpoint(run.path, 10, attempt="f" * 32)  # the same step of another attempt
    with pytest.raises(NotFoundError, match=r"step 10 that has the tag paper; found none"):
        tagged_step(run, "paper")
    os.rename(run.path / "step-0000000010", run.path / "gone")
    with pytest.raises(NotFoundError, match=r"removed or moved away.*untag"):
        tagged_step(run, "paper")


def test_a_step_that_is_going_at_this_moment_is_not_tagged(run):
    (run.path / "marks.json").write_bytes(MarksFile(files.RUN_ID, removing=(10,)).to_bytes())
    with pytest.raises(
        NotFoundError, match=r"step-0000000010: expected a checkpoint that stays; found the job .* is removing it"
    ):
        tag(run, 10, "paper")
    assert tags(run) == {} and tag(run, 40, "paper")


def test_a_step_that_goes_while_it_is_tagged_is_not_tagged(run, monkeypatch):
    def go(path, real=durable.sync_dir):
        if (run.path / "step-0000000010").exists():
            os.rename(run.path / "step-0000000010", run.path / ".trash-x")
        real(path)

    monkeypatch.setattr(durable, "sync_dir", go)
    with pytest.raises(NotFoundError, match="is removing it at this moment"):
        tag(run, 10, "paper")
    assert os.listdir(run.path / "tags") == []


def test_a_tag_that_can_not_be_written_leaves_none(run, monkeypatch):
    def fail(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deepfreeze.store.durable.os.write", fail)
    with pytest.raises(RunError, match="No space left on device"):
        tag(run, 10, "paper")
    assert os.listdir(run.path / "tags") == []


def test_other_files_are_no_tags_and_a_damaged_one_is_damage(run):
    tag(run, 10, "paper")
    (run.path / "tags" / ".nfs0001").write_text("x")
    assert list(tags(run)) == ["paper"]
    files.flip(run.path / "tags" / "paper", 30)
    with pytest.raises(CorruptError):
        tags(run)
    with pytest.raises(CorruptError):
        prune(run.path, 1)  # which checkpoint it keeps is not known
    assert [info.step for info in deepfreeze.checkpoints(run.path)] == [5, 10, 40]
    assert untag(run, "paper") is None and list(prune(run.path, 1).keep) == [40]


def test_prune_keeps_what_has_a_tag(run):
    tag(run, 5, "first")
    assert prune(run.path, 1).keep == {5: "tag first", 40: "newest"}


def test_prune_says_what_goes_before_it_goes(run, monkeypatch):
    """So no tag can be put on it from then on."""
    said = []

    def discard(self, folder, step, real=WritableRun.discard):
        said.append((step, read_marks(run).removing))
        with pytest.raises(NotFoundError, match="is removing it at this moment"):
            tag(run, step, "late")
        return real(self, folder, step)

    monkeypatch.setattr(WritableRun, "discard", discard)
    tag(run, 5, "first")
    files.write_checkpoint(run.path, 50)
    prune(run.path, 1)
    assert said == [(10, (10, 40)), (40, (10, 40))] and list(tags(run)) == ["first"]


@pytest.mark.parametrize("look", range(LOOKS))
@pytest.mark.parametrize("tagged_before", [False, True])
def test_a_tag_that_succeeds_while_prune_looks_keeps_its_checkpoint(run, monkeypatch, tagged_before, look):
    """Right after any of the looks at the tags; also where an earlier tag goes right before that look, so that the looks disagree."""
    looks, late = [], []

    def judge(self, *arguments, real=Marks.judge):
        looks.append(len(late))
        if len(looks) != look + 1:
            return real(self, *arguments)
        if tagged_before:
            untag(run, "first")
        verdict = real(self, *arguments)
        with contextlib.suppress(NotFoundError):
            late.append(tag(run, 10, "late"))
        return verdict

    monkeypatch.setattr(Marks, "judge", judge)
    if tagged_before:
        tag(run, 10, "first")
    pruning = prune(run.path, 1)
    left = [info.step for info in deepfreeze.checkpoints(run.path)]
    assert not late or tagged_step(run, "late") == 10
    assert left == list(pruning.keep) and all(pruning.keep.values())
    assert sorted({5, 10, 40} - set(left)) == [removal.step for removal in pruning.removals]
    assert len(looks) <= LOOKS, "there are looks that this test does not try"
