"""What a job knows of its checkpoints: metrics and their checkpoints, marks.json, what goes."""

from __future__ import annotations

import json
import logging
import os
import shutil

import pytest

from deepfreeze.errors import CorruptError, NewerError, RunError
from deepfreeze.events.messages import to_logger
from deepfreeze.format.marks import Mark, MarksFile
from deepfreeze.format.sealed_json import seal
from deepfreeze.store import Best, Epochs, Latest, Spaced, Tagged, tags
from deepfreeze.store.marks import Marks, Measurement, finite
from deepfreeze.store.marks import write as write_marks
from deepfreeze.store.run import Run
from tests.support import files

OTHER = "f" * 32


@pytest.fixture
def run(tmp_path):
    return Run.open(files.write_run(tmp_path / "run"))


def known(run, *steps, resumed=None) -> Marks:
    """Of an attempt that has committed these steps."""
    marks = Marks.read(run, to_logger, resumed)
    for step in steps:
        commit(run, marks, step)
    return marks


def commit(run, marks, step, time=0, diverged=False):
    files.write_checkpoint(run.path, step)
    marks.captured(step)
    marks.committed(step, files.ATTEMPT, time, diverged)


def of(marks) -> dict[int, tuple]:
    """(epoch, step of the measurement, metrics) of each step that has some."""
    marks.settle()
    found = marks.history({}).checkpoints
    return {one.step: (one.epoch, one.measured, dict(one.metrics)) for one in found if one.measured is not None}


def retain(marks, rule, pending=4, loop=False) -> tuple[int, ...]:
    return marks.retain(rule, pending, loop, lambda data: write_marks(marks.run, data)).remove


def written(run) -> dict:
    return json.loads((run.path / "marks.json").read_text())


def test_an_epochs_metrics_are_its_newest_checkpoints(run):
    marks = known(run, 8, 16)
    marks.measured(Measurement(20, {"loss": 0.5}, epoch=1))
    marks.measured(Measurement(22, {"loss": 0.4}, epoch=2))  # no checkpoint in this epoch
    commit(run, marks, 30)
    marks.measured(Measurement(30, {"loss": 0.3}, epoch=3))
    assert of(marks) == {16: (1, 20, {"loss": 0.5}), 30: (3, 30, {"loss": 0.3})}


@pytest.mark.parametrize("fails", [False, True])
def test_metrics_wait_for_a_checkpoint_that_is_on_its_way(run, fails):
    marks = known(run, 8)
    marks.captured(16)
    marks.measured(Measurement(20, {"loss": 0.5}, epoch=1))
    marks.settle()
    assert of(marks) == {} and [one.step for one in marks.history({}).checkpoints if one.awaited] == [8]
    if fails:
        marks.failed(16)
    else:
        commit(run, marks, 16)
    commit(run, marks, 24)
    assert of(marks) == {8 if fails else 16: (1, 20, {"loss": 0.5})}
    assert not any(one.awaited for one in marks.history({}).checkpoints)


def test_what_retention_would_remove_at_its_commit_need_not_come(run):
    """Of the steps on their way that newer ones have overtaken. Each is judged as if it were committed now, and the others were not."""
    marks = known(run, 8)
    for step in (16, 24, 40):
        marks.captured(step)
    assert marks.unwanted(Latest(1), 4, False, 0) == {}, "nothing newer is committed"
    commit(run, marks, 32)
    assert marks.unwanted(Latest(1), 4, False, 0) == {16: 32, 24: 32}
    assert marks.unwanted(Latest(2), 4, False, 0) == {}, "either is newer than 8"
    commit(run, marks, 24)
    assert marks.unwanted(Latest(2), 4, False, 0) == {16: 32}
    assert marks.unwanted(Latest(2) | Spaced(steps=16), 4, False, 0) == {}
    marks.failed(16)
    assert marks.unwanted(Latest(2), 4, False, 0) == {}


@pytest.mark.parametrize("loop", [False, True])
def test_what_may_turn_out_to_be_wanted_is_waited_for(run, loop):
    """An epoch has ended with step 16, which is on its way; in a loop the metrics of any step may still come."""
    marks = known(run, 8)
    marks.captured(16)
    marks.measured(Measurement(20, {"loss": 0.1}, epoch=1))
    commit(run, marks, 24)
    for rule in (Epochs(1), Best("loss", "min")):
        assert marks.unwanted(rule, 4, loop, 0) == {}
    assert of(marks) == {}, "nothing has changed"


@pytest.mark.parametrize("reason", ["diverged", "resumed"])
def test_what_always_stays_is_waited_for(run, reason):
    marks = known(run, 8, resumed=8 if reason == "resumed" else None)
    marks.captured(16)
    commit(run, marks, 24, diverged=reason == "diverged")
    assert marks.unwanted(Latest(1), 4, False, 0) == ({} if reason == "diverged" else {16: 24})


def test_the_last_step_captured_after_the_last_epochs_end_has_its_metrics(run):
    marks = known(run, 8)
    marks.measured(Measurement(10, {"loss": 0.5}, epoch=1))
    assert of(marks) == {8: (1, 10, {"loss": 0.5})}
    commit(run, marks, 10)
    assert of(marks) == {10: (1, 10, {"loss": 0.5})}


@pytest.mark.parametrize("measured", [False, True])
def test_all_metrics_of_one_step_belong_to_one_checkpoint(run, measured):
    """Those that are logged before the last step is captured go over to its checkpoint together. ``measured``: the checkpoint before has
    metrics of its own step."""
    marks = known(run, 9)
    of_9 = {}
    if measured:
        marks.measured(Measurement(9, {"c": 3.0}))
        of_9 = {9: (None, 9, {"c": 3.0})}
    for name in "ab":
        marks.measured(Measurement(10, {name: 1.0}))
        marks.settle()
    assert of(marks) == (of_9 or {9: (None, 10, {"a": 1.0, "b": 1.0})})
    commit(run, marks, 10)
    assert of(marks) == of_9 | {10: (None, 10, {"a": 1.0, "b": 1.0})}


def test_metrics_of_a_later_captured_step_leave_earlier_steps_theirs(run):
    marks = known(run, 8)
    for step in (8, 9, 10, 12):
        marks.measured(Measurement(step, {f"of_{step}": 1.0}))
        marks.settle()
    commit(run, marks, 10)
    assert of(marks) == {8: (None, 8, {"of_8": 1.0}), 10: (None, 10, {"of_10": 1.0})}
    commit(run, marks, 12)
    assert of(marks)[12] == (None, 12, {"of_12": 1.0})


def test_an_epoch_whose_only_checkpoint_is_captured_after_its_end_has_it(run):
    marks = known(run)
    marks.measured(Measurement(10, {"loss": 0.5}, epoch=1))
    assert of(marks) == {}
    commit(run, marks, 10)
    assert of(marks) == {10: (1, 10, {"loss": 0.5})}


def test_no_epoch_gives_its_metrics_to_the_checkpoint_that_was_resumed(run):
    known(run, 8)
    marks = known(run, resumed=8)
    marks.measured(Measurement(12, {"loss": 0.5}, epoch=2))
    assert of(marks) == {}


def test_in_a_loop_metrics_may_come_late_in_any_order_and_one_by_one(run):
    marks = known(run, 10, 20, 30)
    assert [one.step for one in marks.history({}, loop=True).checkpoints if one.awaited] == [10, 20, 30]
    for step, values in ((30, {"a": 3.0}), (10, {"a": 1.0}), (30, {"b": 4.0}), (25, {"a": 2.0})):
        marks.measured(Measurement(step, values))
        marks.settle()
    assert of(marks) == {10: (None, 10, {"a": 1}), 20: (None, 25, {"a": 2}), 30: (None, 30, {"a": 3, "b": 4})}
    assert not any(one.awaited for one in marks.history({}, loop=True).checkpoints)


def test_what_goes_is_said_before_it_goes_and_each_kept_one_has_its_reason(run):
    marks = known(run, 10, 20, 30)
    marks.measured(Measurement(10, {"loss": 0.25}))
    assert retain(marks, Latest(1) | Best("loss", "min")) == (20,)
    found = written(run)
    assert found["removing"] == [20] and found["rule"] == "Latest(1) | Best('loss', 'min', 1)"
    assert {one["step"]: one.get("reason") for one in found["checkpoints"]} == {
        10: "best loss 0.25",
        20: None,
        30: "newest",
    }
    assert retain(marks, Latest(1)) == (10, 20)  # what is still there is told again


def test_metrics_of_a_checkpoint_that_is_going_come_too_late(run):
    """No other checkpoint goes because of them, and no older checkpoint gets them."""
    marks, rule = known(run, 5, 10, 20, 30), Latest(1) | Best("loss", "min", 2)
    for step, loss in ((5, 0.9), (20, 0.5)):
        marks.measured(Measurement(step, {"loss": loss}))
    assert retain(marks, rule) == (10,)
    for _ in range(2):
        marks.measured(Measurement(10, {"loss": 0.1}))
        assert retain(marks, rule) == (10,) and written(run)["removing"] == [10]
    os.rename(run.path / "step-0000000010", run.path / "elsewhere")
    for step in (10, 15):
        marks.measured(Measurement(step, {"loss": 0.1}))
        assert retain(marks, rule) == ()
    assert of(marks) == {5: (None, 5, {"loss": 0.9}), 20: (None, 20, {"loss": 0.5})}


def test_a_broken_tag_changes_nothing_of_what_was_told_to_go(run):
    marks = known(run, 10, 20)
    assert retain(marks, Latest(1)) == (10,)
    (run.path / "tags").mkdir()
    (run.path / "tags" / "paper").write_bytes(b"broken")
    with pytest.raises(CorruptError):
        retain(marks, Latest(1))
    assert written(run)["removing"] == [10]


def test_metrics_and_times_live_on_and_few_manifests_are_read_at_a_start(run, monkeypatch):
    marks = known(run, *range(10, 310, 10))
    marks.measured(Measurement(10, {"loss": 0.25}, epoch=1))
    assert retain(marks, Latest(99)) == ()
    files.write_checkpoint(run.path, 310)  # committed by an attempt that was killed before it heard of it
    read = []
    monkeypatch.setattr(Run, "manifest", lambda self, step, real=Run.manifest: read.append(step) or real(self, step))
    again = Marks.read(run, to_logger)
    assert read == list(range(240, 320, 10))
    assert of(again) == {10: (1, 10, {"loss": 0.25})} and len(again.history({}).checkpoints) == 31
    assert [one.time for one in again.history({}).checkpoints][-1] == 1795232158  # files.CREATED


def test_a_dead_jobs_checkpoint_has_the_metrics_of_its_epochs_end(run):
    """Whoever commits it does not have them; its manifest does."""
    logs = {"epoch": 3, "step": 10, "values": {"loss": 0.25, "lost": "nan"}}
    files.write_checkpoint(run.path, 10, files.sample(version=2), said={"logs": logs})
    files.write_checkpoint(run.path, 12, files.sample(version=2), said={"logs": logs})  # in the epoch after
    files.write_checkpoint(run.path, 14, files.sample(version=2), said={"logs": {"epoch": 3, "values": {"loss": 0.1}}})
    # Numbers that no float and no marks.json could hold.
    for step, epoch in ((16, 3), (18, 2**63), (20, -1)):
        logs = {"epoch": epoch, "step": step, "values": {"loss": 10**400, "mae": 0.5}}
        files.write_checkpoint(run.path, step, files.sample(version=2), said={"logs": logs})
    assert of(Marks.read(run, to_logger)) == {10: (3, 10, {"loss": 0.25}), 16: (3, 16, {"mae": 0.5})}


def test_a_step_that_another_attempt_has_made_anew_has_no_old_metrics(run):
    marks = known(run, 10)
    marks.measured(Measurement(10, {"loss": 0.25}, epoch=1))
    retain(marks, Latest(9))
    shutil.rmtree(run.path / "step-0000000010")
    files.write_checkpoint(run.path, 10, attempt=OTHER)
    (again,) = Marks.read(run, to_logger).history({}).checkpoints
    assert (again.attempt, dict(again.metrics)) == (OTHER, {})


def test_checkpoints_that_are_gone_or_are_none_do_not_count(run):
    marks = known(run, 10, 20, 30, 40)
    os.rename(run.path / "step-0000000040", run.path / "elsewhere")
    assert retain(marks, Latest(1)) == (10, 20)
    (run.path / "step-0000000050").mkdir()
    assert [one.step for one in Marks.read(run, to_logger).history({}).checkpoints] == [10, 20, 30]


def test_a_damaged_marks_file_counts_as_none_with_a_warning(run, caplog):
    retain(known(run, 10, 20), Latest(9))
    files.flip(run.path / "marks.json", 40)
    with caplog.at_level(logging.WARNING):
        assert [one.step for one in Marks.read(run, to_logger).history({}).checkpoints] == [10, 20]
    assert "metrics of earlier checkpoints are not known any more" in caplog.text


def test_a_newer_versions_marks_end_retention(run):
    (run.path / "marks.json").write_bytes(seal('{"format": 2, "run_id": "' + files.RUN_ID + '"'))
    with pytest.raises(NewerError):
        Marks.read(run, to_logger)


def test_an_attempt_whose_run_was_taken_writes_no_marks(run):
    (run.path / "owner").write_text(OTHER + "\n")
    with pytest.raises(RunError, match=f"attempt {OTHER}, which has taken the run"):
        write_marks(run, b"", files.ATTEMPT)
    write_marks(run, b"mine", OTHER)
    assert (run.path / "marks.json").read_bytes() == b"mine"


def test_tags_are_read_anew_after_it_is_said_what_goes(run):
    """A tag that comes between the two keeps its checkpoint, and marks.json does not say any more that it goes."""
    marks = known(run, 10, 20, 30)
    said = []

    def write(data):
        said.append(json.loads(data)["removing"])
        write_marks(run, data)
        if len(said) == 1:
            (run.path / "tags").mkdir()
            made = tags.TagFile(run.run_id, 10, files.ATTEMPT)
            (run.path / "tags" / "paper").write_bytes(made.to_bytes())

    assert marks.retain(Latest(1) | Tagged(), 4, False, write).remove == (20,)
    assert said == [[10, 20], [20]]


def test_epochs_keeps_what_epochs_have_ended_with(run):
    marks = known(run)
    for epoch in range(1, 7):
        commit(run, marks, 10 * epoch)
        marks.measured(Measurement(10 * epoch, {}, epoch))
    assert retain(marks, Epochs(2)) == (10, 30, 50)


def test_the_files_bytes_are_read_as_they_were_written():
    mark = Mark(40, files.ATTEMPT, 1_700_000_000, True, 3, 45, {"val_loss": 0.125, "nan": float("nan")}, "epoch 3")
    made = MarksFile(files.RUN_ID, "Latest(2)", (10, 20), (Mark(30, files.ATTEMPT, 5), mark))
    found = MarksFile.from_bytes(made.to_bytes(), "x")
    assert found.marks[1].metrics == {"val_loss": 0.125} and found.marks[0] == made.marks[0]
    assert (found.removing, found.rule, found.marks[1].reason) == ((10, 20), "Latest(2)", "epoch 3")
    assert MarksFile.from_bytes(found.to_bytes(), "x") == found


@pytest.mark.parametrize(
    ("key", "value"),
    [("removing", ["x"]), ("removing", [-1]), ("checkpoints", {}), ("checkpoints", [{"step": 1}]), ("rule", 3),
     ("checkpoints", [{"step": 1, "attempt": "0" * 32, "time": 1, "diverged": 0}]),
     ("checkpoints", [{"step": 1, "attempt": "0" * 32, "time": 1, "diverged": False, "metrics": {"a": True}}]),
     ("checkpoints", [{"step": 1, "attempt": "0" * 32, "time": 1, "diverged": False, "metrics": {"\n": 1.0}}]),
     ("checkpoints", [{"step": 1, "attempt": "0" * 32, "time": 1, "diverged": False, "metrics": {"a": 10**400}}]),
     ("checkpoints", [{"step": 1, "attempt": "0" * 32, "time": 1, "diverged": False, "metrics": None}]),
     ("checkpoints", [{"step": 1, "attempt": "0" * 32, "time": 1, "diverged": False, "more": 1}])],
)  # fmt: skip
def test_a_file_with_wrong_values_is_damaged(key, value):
    made = {"format": 1, "run_id": files.RUN_ID, "rule": "", "removing": [], "checkpoints": []} | {key: value}
    with pytest.raises(CorruptError):
        MarksFile.from_bytes(seal(json.dumps(made).removesuffix("}")), "x")


def test_what_is_no_finite_number_is_no_metric():
    values = {"a": 1, "b": "x", "c": float("inf"), "d\n": 1, "e": None, "f": "2.5", "g": 10**400}
    assert finite(values) == {"a": 1.0, "f": 2.5}


class Bad:
    """A rule with a fault of its own."""

    def __init__(self, reason=None):
        self.reason = reason

    def wants(self, history):
        if self.reason is None:
            raise KeyError("no idea")
        return {one.step: self.reason for one in history.checkpoints}


def test_metrics_outlive_a_rule_that_fails(run):
    """The job ends with the rule broken; the next job has a good rule, and keeps the best checkpoint."""
    marks = known(run, 10, 20, 30)
    for step, loss in ((10, 0.1), (20, 0.5), (30, 0.4)):
        marks.measured(Measurement(step, {"loss": loss}))
    with pytest.raises(KeyError):
        retain(marks, Bad(), loop=True)
    assert retain(known(run, resumed=30), Best("loss", "min"), loop=True) == (20,)


def test_a_rules_reason_may_be_any_text(run):
    marks = known(run, 10)
    marks.measured(Measurement(10, {"loss": 0.1}))
    assert retain(marks, Bad("best\nof\tall \u2028"), loop=True) == ()
    (mark,) = MarksFile.from_bytes((run.path / "marks.json").read_bytes(), "x").marks
    assert mark.metrics == {"loss": 0.1} and "best" in mark.reason


@pytest.mark.parametrize("error", [RunError, CorruptError])
def test_a_manifest_that_can_not_be_read_for_a_moment_costs_no_metrics(run, monkeypatch, error):
    marks = known(run, 10, 20)
    marks.measured(Measurement(10, {"loss": 0.1}))
    retain(marks, Latest(9), loop=True)
    manifest = Run.manifest

    def fails(self, step):
        if step == 10:
            raise error(where="here", expected="a", found="b", todo="c")
        return manifest(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "manifest", fails)
        if error is RunError:
            with pytest.raises(RunError):
                known(run)
        else:
            assert of(known(run))[10][2] == {"loss": 0.1}
    assert of(known(run))[10][2] == {"loss": 0.1}
