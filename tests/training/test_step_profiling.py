"""``Capture(profile=True)`` in trainings of one rank: what the run keeps, what a user sees, and that the training is as without it."""

import threading

import numpy as np
import pytest

import deepfreeze
from deepfreeze.events import Notice
from deepfreeze.plan.step import planning
from deepfreeze.plan.step.highs import Stopped
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.step_plan_file import StepPlanFile
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run
from deepfreeze.training.parts.profiling import _notes
from tests.support import kerases, trainings
from veloc_bindings import StepMark

pytestmark = pytest.mark.tensorflow
STEPS = 60  # the profile is complete at the 43rd of them, with a checkpoint every 2


def fit(keras, folder, profile=True, planned=True, **fitting):
    """A training. Returns the callback, its events, the weights at the end, and the train function before and after the marks.
    ``planned``: it waits for the plan before it ends."""
    keras.backend.clear_session()  # as a new process: the layers have the names of the last training's
    events, functions = [], []
    model = trainings.dense(
        keras, "adam", **{key: fitting.pop(key) for key in ("steps_per_execution",) if key in fitting}
    )

    def end(logs=None):
        for thread in threading.enumerate():
            if planned and thread.name == "deepfreeze-plan":
                thread.join()

    look = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: functions.append(model.train_function), on_train_end=end
    )
    capture = deepfreeze.Capture(profile=True) if profile else deepfreeze.Capture()
    checkpoint = deepfreeze.Checkpoint(
        folder / "run", 2, capture=capture, verbose=0, keep=99, wait_for="external", listeners=[events.append]
    )
    model.fit(trainings.data(STEPS), verbose=0, shuffle=False, callbacks=[look, checkpoint], **fitting)
    return checkpoint, events, [np.asarray(value) for value in model.get_weights()], functions


def said(events):
    return [one.message for one in events if isinstance(one, Notice) and "step" in one.message]


def kept(folder):
    """The profile of the run, and its plan, which is checked when it is read."""
    run = Run.open(folder / "run")
    found = step_plans.read_profile(run)
    assert found is not None
    profile, name = StepProfile.from_json(found.profile), found.plan
    assert found.every == 2
    if name is None:
        return profile, None
    plan = StepPlanFile.from_bytes(*step_plans.read(run, name))
    plan.check(profile, name)
    return profile, plan


@kerases.one_will_do
def test_a_profiled_training_has_a_plan_and_is_as_without_a_profile(keras, tmp_path):
    (tmp_path / "plain").mkdir()
    plain, _, weights, _ = fit(keras, tmp_path / "plain", profile=False)
    checkpoint, events, profiled, functions = fit(keras, tmp_path)
    assert all(np.array_equal(one, other) for one, other in zip(weights, profiled, strict=True))
    assert (checkpoint.stats.steps, sorted(checkpoint.stats.committed)) == (plain.stats.steps, plain.stats.steps)
    assert functions[0] is functions[-1], "the model has its own function back"
    assert len({id(function) for function in functions}) == 2
    profile, file = kept(tmp_path)
    with deepfreeze.read(tmp_path / "run") as saved:
        expected = {name: saved[name].nbytes for name in saved}
    found = {one.name: one.nbytes for one in profile.tensors}
    # tf_keras's metrics are in the model file, Keras's are a rank's own.
    assert found.items() >= expected.items() and set(found) - set(expected) <= {"loss/total", "loss/count"}
    assert profile.world_size == 1
    # A capture in the step is no second update.
    ready = {one.name for one in profile.tensors if one.ready == len(profile.windows) - 1}
    assert not any(name.endswith(("kernel", "bias", "m", "v")) for name in ready), ready
    assert 1 < len(profile.windows) <= 64 and all(window.rate > 0 for window in profile.windows)
    assert file.plan.question.every == 2 and file.plan.question.nbytes == profile.nbytes
    assert any("a planned step would hold" in message and "--schedule" in message for message in said(events))


@kerases.one_will_do
def test_a_training_that_ends_first_stops_the_solver(keras, tmp_path, monkeypatch):
    """A solver that would go on for ever: the run keeps the profile, and the user is told how to plan it."""
    begun = threading.Event()

    def endless(profile, asked, stop):
        begun.set()
        while not stop():
            threading.Event().wait(0.01)
        raise Stopped

    monkeypatch.setattr(planning, "plan_file", endless)
    _, events, _, _ = fit(keras, tmp_path, planned=False)
    assert begun.is_set() and kept(tmp_path)[1] is None
    assert any(
        "has ended before the step was planned" in message and "--schedule" in message for message in said(events)
    )
    assert not any(thread.name == "deepfreeze-plan" for thread in threading.enumerate())


@pytest.mark.full
@kerases.one_will_do
def test_a_step_that_can_not_be_profiled_says_why(keras, tmp_path):
    _, events, _, functions = fit(keras, tmp_path, steps_per_execution=2)
    assert any("the step is not profiled, because an execution has 2 steps" in message for message in said(events))
    assert (
        len({id(function) for function in functions}) == 1
        and step_plans.read_profile(Run.open(tmp_path / "run")) is None
    )


def trained(keras, folder, model, *callbacks, steps=STEPS):
    """A training of a model. Returns the callback and what it said."""
    events = []
    checkpoint = deepfreeze.Checkpoint(
        folder / "run", 2, capture=deepfreeze.Capture(profile=True), verbose=0, listeners=[events.append]
    )
    model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=[*callbacks, checkpoint])
    return checkpoint, said(events)


@pytest.mark.full
@kerases.one_will_do
def test_an_eager_step_is_not_profiled(keras, tmp_path):
    model = trainings.dense(keras)
    model.compile("adam", "mse", run_eagerly=True)
    _, messages = trained(keras, tmp_path, model, steps=12)
    assert any("is not profiled" in message for message in messages)


@kerases.one_will_do
def test_a_step_inside_another_function_is_profiled_as_far_as_it_is_seen(keras, tmp_path):
    import tensorflow as tf

    class Inner(keras.Sequential):
        """Its step is a function of its own, whose ops are not those of the train function."""

        @tf.function
        def inner(self, data):
            """The step of Keras."""
            return super().train_step(data)

        def train_step(self, data):
            """Calls it."""
            return self.inner(data)

    checkpoint, messages = trained(keras, tmp_path, trainings.dense(keras, cls=Inner))
    assert checkpoint.stats.steps and not any("could not" in message for message in messages)
    found = step_plans.read_profile(Run.open(tmp_path / "run"))
    assert found is not None or any("is not profiled" in message for message in messages)


@kerases.one_will_do
def test_a_train_function_that_somebody_else_makes_stays(keras, tmp_path):
    model, made = trainings.dense(keras), []

    def replaced(batch, logs):
        if batch == 20:
            model.train_function = model.make_train_function(force=True) or model.train_function
            made.append(model.train_function)

    look = keras.callbacks.LambdaCallback(on_train_batch_end=replaced)
    checkpoint, messages = trained(keras, tmp_path, model, look)
    assert len(checkpoint.stats.steps) == STEPS // 2 and model.train_function is made[0]
    assert any(
        "is not profiled" in message or "a planned step" in message or "has ended before" in message
        for message in messages
    )


@pytest.mark.full
@kerases.one_will_do
def test_a_training_that_is_too_short_leaves_nothing(keras, tmp_path):
    _, _, _, functions = fit(keras, tmp_path, steps_per_epoch=20)
    assert step_plans.read_profile(Run.open(tmp_path / "run")) is None
    assert functions[0] is not functions[-1]


def test_bytes_and_time_of_the_place_that_is_written_to_first_are_taken():
    mark = StepMark(
        at_us=1_000_000, cpu_us=2_000_000, external_bytes=3, local_bytes=4, external_us=5_000_000, local_us=6_000_000
    )
    for tier, bytes_and_seconds in (("disk", (4, 6)), ("memory", (3, 5)), ("none", (3, 5))):
        notes = _notes([[mark], [mark]], tier)
        assert notes.at.tolist() == [[1], [1]] and notes.cpu.tolist() == [[2], [2]]
        assert (notes.written[0, 0], notes.writing[1, 0]) == bytes_and_seconds
