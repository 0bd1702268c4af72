"""``every="auto"`` in trainings of one rank: what is captured, what plan.json keeps, and what a user sees of it."""

import json
import math
import tempfile
import time

import pytest

import deepfreeze
from deepfreeze.events import Decision, Measured, Notice
from deepfreeze.format.plan_file import PlanFile
from deepfreeze.format.sealed_json import seal
from deepfreeze.plan import Auto
from deepfreeze.store.plan import put_section, read_section
from deepfreeze.store.run import Run
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow


def fit(keras, folder, steps=60, every=None, **options):
    """A training, and all its events. Returns the callback, the events and Keras's logs."""
    events = []
    keras.backend.clear_session()  # as a new process: the layers have the names of the last training's
    model = trainings.dense(keras)
    options = {"verbose": 0, "keep": 99, "wait_for": "external", "logs": True, "listeners": [events.append], **options}
    checkpoint = deepfreeze.Checkpoint(folder / "run", every or Auto(overhead=0.5), **options)
    history = model.fit(trainings.data(steps), epochs=2, verbose=0, shuffle=False, callbacks=[slow(keras), checkpoint])
    return checkpoint, events, history.history


def slow(keras):
    """Makes a step long enough for a few of them to pay for a checkpoint, on any disk."""
    return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.005))


def section(folder):
    return read_section(Run.open(folder / "run"), "auto")


@kerases.one_will_do
def test_auto_profiles_decides_saves_and_keeps_its_plan(keras, tmp_path):
    """The first steps have no checkpoint, the next two are probes; then comes one at each interval, and plan.json has the reason, and
    that the local tier is memory, wherever its file system is mounted."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        (tmp_path / "job").symlink_to(memory)
        checkpoint, events, logs = fit(keras, tmp_path, local=tmp_path / "job")
    stats = checkpoint.stats
    first, second, *later = stats.steps
    assert first >= 10 and second > first and later, "eight plain steps after two that are untypical"
    assert sorted(stats.committed) == stats.steps, "the probes are real checkpoints"
    decision = next(one for one in events if isinstance(one, Decision))
    assert (decision.step, decision.after, decision.reason, decision.rank) == (*stats.intervals[0][:2], "profile", 0)
    assert decision.terms["profile"]["iteration"] > 0 and decision.terms["profile"]["persist"] > 0
    assert decision.terms["profile"]["nbytes"] == stats.nbytes
    kept = section(tmp_path)
    assert kept["interval"] == stats.intervals[-1].interval
    assert (kept["key"]["world_size"], kept["key"]["tier"]) == (1, "memory")
    assert [one["reason"] for one in kept["decisions"]] == [one.reason for one in stats.intervals]
    due = {decision.step + n * decision.after for n in range(1, 3)}
    assert due & set(stats.steps) or decision.step + decision.after > 120
    assert logs["deepfreeze_interval"][-1] == stats.intervals[-1].interval


@kerases.one_will_do
def test_a_resumed_job_does_not_profile_again(keras, tmp_path):
    before, _, _ = fit(keras, tmp_path)
    _again, events, _ = fit(keras, tmp_path, resume_epochs=False)
    resumed = next(one for one in events if isinstance(one, Decision))
    assert resumed.reason == "resumed"
    assert resumed.after <= before.stats.intervals[-1].interval, (
        "less where the plan's profile asks for less than half of it"
    )
    assert resumed.step - 120 <= 5, "nothing is profiled"
    assert not any("profiled" in one.message for one in events if isinstance(one, Notice))
    assert [one["reason"] for one in section(tmp_path)["decisions"]][: len(before.stats.intervals)] == [
        one.reason for one in before.stats.intervals
    ]


@pytest.mark.full
def test_a_second_fit_of_the_program_goes_on_with_the_interval(keras, tmp_path):
    decisions = []
    model, checkpoint = (
        trainings.dense(keras),
        deepfreeze.Checkpoint(
            tmp_path / "run",
            Auto(0.5),
            verbose=0,
            resume_epochs=False,
            wait_for="external",
            listeners=[decisions.append],
        ),
    )
    for _ in range(2):
        model.fit(trainings.data(60), verbose=0, shuffle=False, callbacks=[slow(keras), checkpoint])
    found = [one for one in decisions if isinstance(one, Decision)]
    assert [one.reason for one in found].count("profile") == 1 and "resumed" not in {one.reason for one in found}


@kerases.cases(["bytes", "another-run", "newer", "section", "conditions"], name="damage", often=["bytes"])
def test_a_plan_that_does_not_serve_is_profiled_again(tmp_path, keras, damage):
    """With a warning, or a line that says what differs; the training goes on, and the plan is written anew unless it is a newer
    version's."""
    fit(keras, tmp_path)
    file = tmp_path / "run" / "plan.json"
    run = Run.open(tmp_path / "run")
    data = file.read_bytes()
    if damage == "bytes":
        file.write_bytes(data.replace(b"interval", b"intervel", 1))
    elif damage == "another-run":
        file.write_bytes(PlanFile("ab" * 16, json.loads(data)["sections"]).to_bytes())
    elif damage == "newer":
        file.write_bytes(seal('{"format": 2, "sections": {}'))
    elif damage == "section":
        put_section(run, "auto", {"key": {}, "wrong": 1})
    else:
        kept = section(tmp_path)
        put_section(run, "auto", {**kept, "key": {**kept["key"], "world_size": 4}})
    again, events, _ = fit(keras, tmp_path, resume_epochs=False)
    notices = [one for one in events if isinstance(one, Notice)]
    messages = [one.message for one in notices]
    (level,) = {one.level for one in notices if "profiled again" in one.message}
    assert level == ("info" if damage == "conditions" else "warning"), messages
    assert again.stats.intervals[0].reason == "profile" and len(again.stats.committed) > 2
    if damage == "conditions":
        assert any("the number of ranks was 4 and is 1" in one for one in messages)
    if damage == "newer":
        assert b'{"format": 2' in file.read_bytes()
    else:
        assert section(tmp_path)["reason"] == again.stats.intervals[-1].reason


@pytest.mark.full
def test_other_sections_of_the_plan_are_kept(keras, tmp_path):
    fit(keras, tmp_path)
    put_section(Run.open(tmp_path / "run"), "tune", {"key": {}, "writers": 4})
    fit(keras, tmp_path, resume_epochs=False)
    assert read_section(Run.open(tmp_path / "run"), "tune") == {"key": {}, "writers": 4}


@kerases.one_will_do
def test_a_training_shorter_than_the_profile_saves_its_end_and_says_so(keras, tmp_path):
    checkpoint, events, _ = fit(keras, tmp_path, steps=3)
    assert checkpoint.stats.steps == [6] and not (tmp_path / "run" / "plan.json").exists()
    (line,) = [one.message for one in events if isinstance(one, Notice) and "interval was chosen" in one.message]
    assert line.startswith(
        "every=Auto(overhead=0.5): the training ended before an interval was chosen (2 steps without"
    )


@pytest.mark.full
def test_the_overhead_is_measured_and_told(keras, tmp_path):
    """The job begins with an interval of two steps, so windows of four intervals come soon."""
    fit(keras, tmp_path)
    put_section(Run.open(tmp_path / "run"), "auto", {**section(tmp_path), "interval": 2, "windows": []})
    checkpoint, events, _ = fit(keras, tmp_path, steps=10, resume_epochs=False)
    measured = [one for one in events if isinstance(one, Measured)]
    assert measured[0].interval == 2 and measured[-1].overhead == checkpoint.stats.overhead
    assert all(one.low <= one.overhead <= one.high and math.isfinite(one.high) for one in measured)
    assert [one["step"] for one in section(tmp_path)["windows"]] == [one.step for one in measured]


@pytest.mark.full
def test_a_loop_written_by_hand_has_auto_too(keras, tmp_path):
    model = trainings.dense(keras)
    with deepfreeze.capture(
        model.optimizer, model, tmp_path / "run", Auto(0.5), verbose=0, wait_for="external"
    ) as checkpoint:
        for x, y in trainings.data(60):
            model.train_on_batch(x, y)
            time.sleep(0.005)
            checkpoint.step()
    assert checkpoint.stats.intervals[0].reason == "profile" and section(tmp_path)["interval"] >= 1
