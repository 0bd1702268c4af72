"""The tier of the guide's page "Extend it": when its buffer is taken, and what a start finds in the copy when the nodes are gone."""

import os
import shutil

import pytest

import deepfreeze
import veloc_bindings as vb
from deepfreeze.store.run import Run
from deepfreeze.tiers import LocalTier, add, tiers
from tests.extending.burst_buffer import BurstBuffer
from tests.support import restart
from tests.support.ranks import check_checkpoint, options, ranks

QUOTA = 1 << 30
FAULT = "kill-before:rename:step-0000000020.partial:1"


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The script of a job with a burst buffer. Returns the buffer and the directory to which it is copied."""
    buffer, copy = tmp_path / "buffer", tmp_path / "copy"
    buffer.mkdir()
    for name, value in {"BB_JOB_DIR": buffer, "BB_COPY_DIR": copy, "BB_QUOTA_BYTES": QUOTA}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(tiers, "TIERS", {"disk": lambda: LocalTier(tmp_path, None)})
    add("burst buffer", BurstBuffer.of_this_job, before="disk")
    return buffer, copy


def end(buffer, copy):
    """The job has ended: the batch system copies the buffer, and the next job gets an empty one."""
    shutil.copytree(buffer, copy)
    shutil.rmtree(buffer)
    buffer.mkdir()


def slots(folder):
    return sorted(folder.rglob("*.slot"))


def test_the_buffer_is_taken_before_the_disk_up_to_its_quota(job, tmp_path, monkeypatch):
    assert tiers.choose("auto", QUOTA)[1] == job[0]
    assert tiers.choose("auto", QUOTA + 1)[1] == tmp_path, "the disk is asked next"
    job[0].rmdir()
    assert tiers.choose("auto", 1)[1] == tmp_path, "a node without the directory"
    monkeypatch.delenv("BB_JOB_DIR")
    assert tiers.of("auto") == [LocalTier(tmp_path, None)], "a job without a burst buffer"


@pytest.mark.crash
def test_a_start_commits_what_the_batch_system_has_copied(job, tmp_path, library):
    """Two ranks are killed in the commit of step 20, whose shards are whole in the buffer alone; then the nodes are gone."""
    buffer, copy = job
    _, place = tiers.choose("auto", 1 << 20)
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
    assert slots(buffer)
    end(buffer, copy)
    assert restart.steps_in(tmp_path / "run") == [10]
    done = restart.reopen(tmp_path, 2, local="auto")
    run = Run.open(tmp_path / "run")
    assert [step for step, _ in done.committed] == [20] and run.committed() == [10, 20] and not run.partials()
    assert all(check_checkpoint(run.step_path(step)) == (step, 1) for step in run.committed())
    assert os.listdir(copy) == [], "cleared when no slot is needed any more"


@pytest.mark.full
@pytest.mark.tensorflow
def test_a_training_keeps_its_slots_in_the_buffer_and_leaves_none(job, tmp_path):
    import keras

    from tests.support import trainings

    seen = set()

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.update(slots(job[0]))

    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=10)
    trainings.dense(keras).fit(trainings.data(6), verbose=0, shuffle=False, callbacks=[checkpoint, Look()])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4, 6]
    assert seen and os.listdir(job[0]) == []
