"""Retention of one training: what it hears, on which thread it asks, what it tells the engine. Needs no engine and no TensorFlow."""

from __future__ import annotations

import json
import os
import threading

import pytest

from deepfreeze.engine.target import Target
from deepfreeze.errors import OptionError
from deepfreeze.events.event import Captured, Diverged, External, Failed, Superseded
from deepfreeze.retention.keeper import Keeper
from deepfreeze.store import Best, Epochs, Latest, Tagged
from deepfreeze.store import tags as tags_module
from deepfreeze.store.run import Run
from tests.support import files


class Job:
    """A run whose engine is played: it removes what it is told."""

    def __init__(self, path, rule, keep_pending=4, loop=False, resumed=0):
        self.path, self.told = path, []
        if not path.exists():
            files.write_run(path)
        self.keeper = Keeper(rule, keep_pending, loop)
        self.given_up = []
        self.keeper.open(Target(str(path), files.RUN_ID, files.ATTEMPT), resumed, self.remove, self.supersede)

    def remove(self, steps):
        self.told.append((list(steps), threading.current_thread().name))
        for step in steps:
            os.rename(self.path / f"step-{step:010d}", self.path / f".gone-{step}-{len(self.told)}")

    def supersede(self, step, by):
        self.given_up.append((step, by))

    def commit(self, *steps, diverged=False):
        for step in steps:
            self.keeper.on(Captured(step=step, nbytes=1))
            files.write_checkpoint(self.path, step)
            if diverged:
                self.keeper.on(Diverged(step=step, message="differ"))
            self.keeper.on(External(step=step, seconds=1, written=1))
            assert self.keeper.finish(60)

    @property
    def there(self):
        return Run.open(self.path).step_dirs()


@pytest.fixture
def start(tmp_path):
    jobs = []

    def make(rule, **options):
        jobs.append(Job(tmp_path / "run", rule, **options))
        return jobs[-1]

    yield make
    for job in jobs:
        job.keeper.close(10)
    assert not [one for one in threading.enumerate() if one.name == "deepfreeze-keeper"]


def test_what_goes_is_told_after_each_commit_by_a_thread_of_its_own(start):
    job = start(Latest(2))
    job.commit(10, 20, 30, 40)
    assert job.told == [([10], "deepfreeze-keeper"), ([20], "deepfreeze-keeper")] and job.there == [30, 40]
    assert job.keeper.notices() == []


def test_an_older_step_that_nobody_wants_is_given_up(start):
    """When it is overtaken, and while the engine may still be asked; and its end changes nothing for those that stay."""
    job = start(Latest(1))
    for step in (10, 15):
        job.keeper.on(Captured(step=step, nbytes=1))
    job.commit(20)
    assert set(job.given_up) == {(10, 20), (15, 20)}
    job.keeper.on(Superseded(step=10, by=20))
    job.keeper.on(Failed(step=15, message="no space", raised=True, reported=True))
    job.given_up.clear()
    job.commit(30)
    assert job.given_up == [] and job.there == [30]


def test_metrics_that_are_lost_are_a_warning(start):
    start(Latest(2)).commit(10)
    job = start(Latest(2))
    files.flip(job.path / "marks.json", 40)
    job.commit(20)
    (lost,) = job.keeper.notices()
    assert "The metrics of earlier checkpoints are not known any more." in lost and job.keeper.notices() == []


def test_a_restart_knows_what_the_job_before_knew(start):
    job = start(Best("loss", "min") | Latest(1))
    job.commit(10)
    job.keeper.measured(10, {"loss": 0.1}, epoch=1)
    job.commit(20, 30)
    job.keeper.close(10)
    job = start(Best("loss", "min") | Latest(1), resumed=30)
    job.commit(40)
    assert job.there == [10, 30, 40]  # 30: resumed from, and there is one newer
    job.commit(50)
    assert job.there == [10, 50]
    assert [one["step"] for one in json.loads((job.path / "marks.json").read_text())["checkpoints"]] == [10, 30, 40, 50]


def test_the_newest_whose_ranks_agreed_stays(start):
    job = start(Latest(1))
    job.commit(10)
    job.commit(20, 30, diverged=True)
    assert job.there == [10, 30]
    job.commit(40)
    assert job.there == [40]


def test_a_tag_given_while_the_job_runs_keeps_its_checkpoint(start):
    job = start(Latest(1) | Tagged())
    job.commit(10)
    tags_module.tag(Run.open(job.path), 10, "paper")
    job.commit(20, 30)
    assert job.there == [10, 30]
    tags_module.untag(Run.open(job.path), "paper")
    job.commit(40)
    assert job.there == [40]


def test_in_a_loop_so_many_wait_for_their_metrics(start):
    job = start(Best("loss", "min"), loop=True, keep_pending=3)
    job.commit(10, 20, 30, 40, 50)
    assert job.there == [30, 40, 50]
    for step, loss in ((30, 3.0), (40, 1.0), (50, 2.0)):
        job.keeper.measured(step, {"loss": loss})
    assert job.keeper.finish(60) and job.there == [40, 50]


def test_a_failed_checkpoint_gives_its_epoch_to_the_one_before(start):
    job = start(Epochs(1) | Latest(1))
    job.commit(10)
    job.keeper.on(Captured(step=20, nbytes=1))
    job.keeper.measured(25, {"loss": 1.0}, epoch=1)
    job.keeper.on(Failed(step=20, message="no", raised=False, reported=True))
    job.commit(30, 40)
    assert job.there == [10, 40]


def test_a_metric_that_never_comes_is_one_warning_and_then_an_error(start):
    job = start(Best("val_loss", "min") | Best("acc", "max"))
    job.keeper.require_metrics()  # no epoch has ended
    warning = job.keeper.measured(10, {"loss": 1.0, "acc": 0.5}, epoch=1)
    assert "no metric val_loss so far; the metrics there are: loss, acc" in warning
    assert job.keeper.measured(20, {"loss": 1.0}, epoch=2) is None
    with pytest.raises(OptionError, match=r"the metric val_loss; found loss, acc. Add it to compile"):
        job.keeper.require_metrics()
    job.keeper.measured(30, {"val_loss": float("nan")}, epoch=3)
    job.keeper.require_metrics()  # it is no number, but it came


def test_a_metric_of_an_earlier_job_is_not_missing(start):
    """A job that is resumed just before its end may take no metrics. Until the run's marks are read, nothing is known to be missing."""
    first = start(Best("val_loss", "min"))
    first.keeper.measured(10, {"val_loss": 1.0}, epoch=1)
    first.commit(10)
    first.keeper.close(10)
    second = start(Best("val_loss", "min") | Best("acc", "max"), resumed=10)
    assert second.keeper.measured(20, {"loss": 1.0}, epoch=2) is None
    second.commit(20)
    assert "no metric acc so far" in second.keeper.measured(30, {"loss": 1.0}, epoch=3)
    with pytest.raises(OptionError, match="the metric acc; found loss"):
        second.keeper.require_metrics()


def test_a_loop_that_logs_nothing_for_best_is_an_error(start):
    job = start(Best("loss", "min"), loop=True)
    job.commit(10)
    with pytest.raises(
        OptionError, match=r"the metric loss; found no metrics. Call checkpoint.log\(step, name=value\)"
    ):
        job.keeper.require_metrics()


def test_a_rule_or_a_store_that_fails_removes_nothing_and_is_told_once(start):
    class Broken:
        def wants(self, history):
            raise KeyError("val_loss")

    job = start(Broken())
    job.commit(10, 20, 30)
    (notice,) = job.keeper.notices()
    assert "no older checkpoint is removed" in notice and "Broken() has failed: KeyError('val_loss')" in notice
    assert job.there == [10, 20, 30] and job.keeper.notices() == []


def test_a_damaged_tag_keeps_everything_until_it_is_mended(start):
    job = start(Latest(1) | Tagged())
    job.commit(10)
    tags_module.tag(Run.open(job.path), 10, "paper")
    files.flip(job.path / "tags" / "paper", 30)
    job.commit(20, 30)
    assert job.there == [10, 20, 30] and "tags/paper" in job.keeper.notices()[0]
    tags_module.untag(Run.open(job.path), "paper")
    job.commit(40)
    assert job.there == [40]


def test_a_full_store_can_still_be_emptied(start, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("deepfreeze.store.durable.replace", full)
    job = start(Latest(1))
    job.commit(10, 20)
    assert job.there == [20]


def test_an_attempt_whose_run_was_taken_tells_the_engine_nothing(start):
    job = start(Latest(1))
    job.commit(10)
    (job.path / "owner").write_text("f" * 32 + "\n")
    job.commit(20)
    assert job.told == [] and "has taken the run" in job.keeper.notices()[0]


def test_a_store_that_hangs_holds_up_neither_training_nor_its_end(start, monkeypatch):
    going_on, asked = threading.Event(), threading.Event()

    def hang(self, real=Run.step_dirs):
        asked.set()
        assert going_on.wait(60)
        return real(self)

    job = start(Latest(1))
    job.commit(10)
    monkeypatch.setattr(Run, "step_dirs", hang)
    files.write_checkpoint(job.path, 20)
    job.keeper.on(External(step=20, seconds=1, written=1))
    assert asked.wait(60) and not job.keeper.finish(0.01)
    worker = job.keeper._worker._thread
    job.keeper.close(0.01)
    going_on.set()
    worker.join(60)
    assert job.told == []  # the run may be another job's by now


def test_another_rank_than_rank_0_does_nothing(tmp_path):
    keeper = Keeper(Best("loss", "min"), 4, False)
    keeper.on(External(step=20, seconds=1, written=1))
    assert keeper.measured(10, {"acc": 1.0}, epoch=1) is None
    keeper.require_metrics()
    assert keeper.finish(1) and keeper.notices() == []
    keeper.close(1)
