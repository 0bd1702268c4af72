"""Late captures: what a step leaves to the next one is saved as it was at its own step, whoever writes to the variables meanwhile."""

import gc
import signal

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.frameworks.tensorflow.late_capture import LateCapture
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.schedule import Schedule
from deepfreeze.state.keras_objects import tf_variable
from tests.support import h5, kerases, trainings

pytestmark = pytest.mark.tensorflow
FIRST = 60_000  # words of a first layer that is nearly all of the model: 1.9 MB


@pytest.fixture
def left(monkeypatch):
    """What was left to the next step: (step, whether that step has copied it)."""
    found = []
    finish = Saver.finish

    def noted(self):
        if self.pending is not None:
            found.append((self.pending, not self._capture.held))
        finish(self)

    monkeypatch.setattr(Saver, "finish", noted)
    return found


def checkpoint(folder, when="late", **options):
    return deepfreeze.Checkpoint(folder / "run", keep=100, capture=deepfreeze.Capture(when=when), **options)


def embedding(keras):
    """A large first layer, whose gradients are sparse."""
    layers = [keras.layers.Embedding(FIRST, 8), keras.layers.Flatten(), keras.layers.Dense(4000), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((trainings.FEATURES,)), *layers])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.0), "mse", jit_compile=False)
    return model


def normalized(keras):
    layers = [
        keras.layers.Dense(8),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((trainings.FEATURES,)), *layers])
    model.compile("adam", "mse", metrics=["mae"], jit_compile=False)
    return model


def clipped(keras):
    """Its ``train_step`` writes to weights after the update."""

    class Critic(keras.Sequential):
        def train_step(self, *args):
            logs = super().train_step(*args)
            for weight in self.trainable_variables:
                weight.assign(tf.clip_by_value(tf.convert_to_tensor(weight), -0.3, 0.3))
            return logs

    return trainings.dense(keras, cls=Critic)


def early(keras):
    """Its ``train_step`` writes to weights before the update."""

    class Decayed(keras.Sequential):
        def train_step(self, *args):
            for weight in self.trainable_variables:
                variable = tf_variable(weight)
                variable.assign_sub(0.1 * variable)
            return super().train_step(*args)

    return trainings.dense(keras, cls=Decayed)


def mixed(keras):
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return trainings.dense(keras)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def of_optimizer(name, **options):
    return lambda keras: trainings.dense(keras, getattr(keras.optimizers, name)(0.01, **options))


MODELS = {
    "momentum": of_optimizer("SGD", momentum=0.9),
    "adam": of_optimizer("Adam"),
    "clipnorm": of_optimizer("Adam", global_clipnorm=0.01),
    "averages": of_optimizer("SGD", use_ema=True, ema_overwrite_frequency=2),
    "embedding": embedding,
    "normalized": normalized,
    "mixed": mixed,
    "clipped": clipped,
    "early": early,
    "eager": lambda keras: trainings.dense(keras, run_eagerly=True),
}


@kerases.cases(MODELS, often=["adam"])
def test_late_checkpoints_are_what_keras_saves_after_their_step(keras, name, left, tmp_path):
    def make():
        return MODELS[name](keras)

    def data():
        return trainings.data(5)

    trainings.train_undisturbed(keras, make, tmp_path, data(), epochs=2)
    for when, every, expected in (
        ("late", 2, [2, 4, 6, 8, 10]),
        ("late", 1, [*range(1, 11)]),
        ("auto", 3, [3, 6, 9, 10]),
    ):
        folder = tmp_path / f"{when}-{every}"
        folder.mkdir()
        model = trainings.alike(keras, make)
        model.fit(data(), epochs=2, verbose=0, shuffle=False, callbacks=[checkpoint(folder, when, every=every)])
        trainings.assert_run_is(folder / "run", tmp_path, expected)
    assert any(copied for _, copied in left)


@pytest.mark.full
@kerases.needs_keras_3
@pytest.mark.parametrize("per_execution", [1, 4])
def test_a_late_capture_waits_for_the_next_batch_not_the_next_update(per_execution, left, tmp_path):
    def make(**options):
        return trainings.dense(keras3, keras3.optimizers.Adam(gradient_accumulation_steps=3), **options)

    trainings.train_undisturbed(keras3, make, tmp_path, trainings.data(24))
    model = trainings.alike(keras3, lambda: make(steps_per_execution=per_execution))
    model.fit(trainings.data(24), verbose=0, shuffle=False, callbacks=[checkpoint(tmp_path, every=3)])
    trainings.assert_run_is(tmp_path / "run", tmp_path, [3, 6, 8])
    assert left == ([(3, True), (6, True)] if per_execution == 1 else [])


@pytest.mark.full
@kerases.one_will_do
def test_late_captures_of_steps_inside_an_execution(keras, left, tmp_path):
    """The step that follows within the execution copies; what the last step of an execution leaves, the next execution copies."""

    def make(**options):
        return trainings.dense(keras, **options)

    trainings.train_undisturbed(keras, make, tmp_path, trainings.data(24))
    model = trainings.alike(keras, lambda: make(steps_per_execution=4))
    model.fit(trainings.data(24), verbose=0, shuffle=False, callbacks=[checkpoint(tmp_path, every=6)])
    trainings.assert_run_is(tmp_path / "run", tmp_path, [6, 12, 18, 24])
    assert left == [(12, True)]


class Steps:
    """A policy with these steps."""

    def __init__(self, *steps):
        self._steps = steps

    def next_step(self, step):
        return min((due for due in self._steps if due > step), default=deepfreeze.plan.NEVER)


@kerases.one_will_do
def test_a_longer_execution_than_expected_spoils_no_late_capture(keras, left, monkeypatch, tmp_path):
    """The execution that copies has the next target, which nobody knew before: its last step is saved in place of the target."""

    def make(**options):
        return trainings.dense(keras, **options)

    trainings.train_undisturbed(keras, make, tmp_path, trainings.data(16))
    monkeypatch.setattr(Schedule, "within", lambda self, steps: False)  # as if the next execution had few steps
    model = trainings.alike(keras, lambda: make(steps_per_execution=4))
    model.fit(trainings.data(16), verbose=0, shuffle=False, callbacks=[checkpoint(tmp_path, every=Steps(4, 6, 10))])
    trainings.assert_run_is(tmp_path / "run", tmp_path, [4, 8, 10, 16])
    assert left == [(4, True)]


def writes(keras, how):
    """A callback that writes to every weight after each batch."""

    class Write(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            for weight in self.model.trainable_variables:
                variable = tf_variable(weight)
                if how == "assign":
                    variable.assign(variable * 0.5)
                elif how == "assign_add":
                    variable.assign_add(tf.ones_like(variable))
                elif how == "assign_sub":
                    variable.assign_sub(0.5 * variable)
                else:
                    variable.scatter_update(tf.IndexedSlices(tf.zeros_like(variable[:1]), [0]))

    return Write()


@kerases.cases(["assign", "assign_add", "assign_sub", "scatter_update"], often=["assign_sub"], name="how")
def test_a_late_capture_is_unchanged_by_writes_between_two_steps(keras, how, left, tmp_path):
    def make():
        return trainings.dense(keras)

    trainings.alike(keras, make).fit(
        trainings.data(8),
        verbose=0,
        shuffle=False,
        callbacks=[trainings.save_weights(keras, tmp_path), writes(keras, how)],
    )
    model = trainings.alike(keras, make)
    callbacks = [checkpoint(tmp_path, every=3, final=False), writes(keras, how)]
    model.fit(trainings.data(8), verbose=0, shuffle=False, callbacks=callbacks)
    trainings.assert_run_is(tmp_path / "run", tmp_path, [3, 6])
    assert left == [(3, True), (6, True)]


@kerases.one_will_do
@pytest.mark.parametrize(
    "end", ["signal", *(pytest.param(end, marks=pytest.mark.full) for end in ("epoch", "restored"))]
)
def test_nothing_that_was_left_is_lost_when_no_step_comes(keras, end, left, tmp_path):
    """After a signal; at the end of an epoch that is a surprise; when another callback puts other weights back there."""

    def make():
        return trainings.dense(keras)

    class End(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if end == "signal" and batch == 3:
                signal.raise_signal(signal.SIGTERM)

        def on_epoch_end(self, epoch, logs=None):
            if end == "restored":
                self.model.set_weights([0 * weight for weight in self.model.get_weights()])

    trainings.train_undisturbed(keras, make, tmp_path, trainings.data(8))
    model, saving = trainings.alike(keras, make), checkpoint(tmp_path, every=4, final=False)
    # Filtered data has an unknown number of batches.
    x = trainings.data(8) if end == "signal" else trainings.data(8).take(4).filter(lambda x, y: True)
    model.fit(x, verbose=0, shuffle=False, callbacks=[End(), saving])
    trainings.assert_run_is(tmp_path / "run", tmp_path, [4])
    assert [step for step, _ in left] == [4]  # an execution that ends for want of a batch may have copied it


@pytest.mark.full
@kerases.one_will_do
def test_what_was_left_is_handed_over_before_an_epoch_has_ended(keras, tmp_path):
    saving, seen = checkpoint(tmp_path, every=4), []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(list(saving.stats.steps))

    # Filtered data has an unknown number of batches.
    x = trainings.data(4).filter(lambda x, y: True)
    trainings.dense(keras).fit(x, epochs=2, verbose=0, callbacks=[saving, Look()])
    assert seen[0] == [4]


def test_a_step_that_keras_counts_without_a_batch_is_counted_late_too(keras, tmp_path):
    """At the end of data of unknown size Keras begins a step, and may count it: the copies must not change whether it does."""

    def make():
        return trainings.dense(keras)

    x = trainings.data(3).filter(lambda x, y: True)
    stock = trainings.train_undisturbed(keras, make, tmp_path, x, epochs=3)
    model = trainings.alike(keras, make)
    model.fit(x, epochs=3, verbose=0, shuffle=False, callbacks=[checkpoint(tmp_path, every=4)])
    assert trainings.count(model.optimizer) == trainings.count(stock.optimizer)
    last = trainings.count(stock.optimizer)
    trainings.assert_run_is(tmp_path / "run", tmp_path, sorted({*range(4, last + 1, 4), last}))


@kerases.one_will_do
def test_what_was_left_is_saved_although_a_callback_raises(keras, left, tmp_path):
    class Raise(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if trainings.count(self.model.optimizer) == 4:
                raise RuntimeError("the user's own")

    def make():
        return trainings.dense(keras)

    trainings.train_undisturbed(keras, make, tmp_path, trainings.data(8))
    model, saving = trainings.alike(keras, make), checkpoint(tmp_path, every=4)
    with pytest.raises(RuntimeError):
        model.fit(trainings.data(8), verbose=0, shuffle=False, callbacks=[saving, Raise()])
    saving.close()
    trainings.assert_run_is(tmp_path / "run", tmp_path, [4])
    assert left == [(4, False)]


@pytest.mark.full
@kerases.one_will_do
def test_a_job_with_late_captures_resumes_bit_for_bit(keras, tmp_path):
    def make():
        return trainings.dense(keras)

    x = trainings.data(9)
    trainings.train_undisturbed(keras, make, tmp_path, x)
    first = checkpoint(tmp_path, every=2)
    trainings.alike(keras, make).fit(x.take(5), verbose=0, shuffle=False, callbacks=[first])
    model, second = make(), checkpoint(tmp_path, every=2)
    assert second.open(model) == 5
    model.fit(x.skip(5), verbose=0, shuffle=False, callbacks=[second])
    trainings.assert_run_is(tmp_path / "run", tmp_path, [2, 4, 5, 6, 8, 9], resumed=True)


@pytest.mark.full
@kerases.one_will_do
def test_a_late_capture_does_not_outlast_a_wait_for_a_level(keras, left, tmp_path):
    saving = checkpoint(tmp_path, every=2, wait_for="external")
    trainings.dense(keras).fit(trainings.data(5), verbose=0, callbacks=[saving])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4, 5] and left == []


@kerases.one_will_do
def test_only_the_next_steps_updates_wait_for_a_late_copy(keras, tmp_path):
    """In the traced graph no op of the forward and backward pass comes behind the copy of any group, and each update comes behind the
    copy of its own variable."""
    graphs = []

    class Traced(keras.Sequential):
        def train_step(self, *args):
            graphs.append(tf.compat.v1.get_default_graph())
            return super().train_step(*args)

    model = trainings.dense(keras, keras.optimizers.SGD(0.1), cls=Traced, units=200)
    model.fit(trainings.data(4), verbose=0, callbacks=[checkpoint(tmp_path, every=2)])
    graph = graphs[-1]
    copies = {op for op in graph.get_operations() if _is_copy(graph, op)}
    assert copies

    def behind(op, seen=None):
        seen = set() if seen is None else seen
        if op not in seen:
            seen.add(op)
            for before in [*op.control_inputs, *(tensor.op for tensor in op.inputs)]:
                behind(before, seen)
        return seen

    passes = [op for op in graph.get_operations() if op.type in ("MatMul", "Relu", "ReluGrad", "BiasAddGrad")]
    assert len(passes) >= 5 and not any(behind(op) & copies for op in passes)
    for weight in model.trainable_variables[:1]:  # the others are small: their updates wait for nothing
        handle = graph.capture(tf_variable(weight).handle)
        (copy,) = [op for op in copies if any(handle is tensor for tensor in op.inputs)]
        others = [op for op in handle.consumers() if op is not copy and op.type != "If"]
        reads = [op for op in others if op.type == "ReadVariableOp"]
        writes = [op for op in others if op.type != "ReadVariableOp"]
        assert any(copy not in behind(op) for op in reads), "the forward pass's"
        assert writes and all(copy in behind(op) for op in writes)


def _is_copy(graph, op):
    return op.type in ("StatefulPartitionedCall", "PartitionedCall") and any(
        node.op == "If" for node in graph._get_function(op.get_attr("f").name).cached_definition.node_def
    )


@pytest.mark.full
def test_a_variable_that_is_copied_when_read_is_not_held_again(keras, monkeypatch, tmp_path):
    """Sparse updates write in place, so TensorFlow copies such a variable for each read. The embedding is therefore captured at its update
    after its first late capture; the other groups stay late."""
    chosen = []
    collected = LateCapture.collected

    def noted(self):
        collected(self)
        groups = [self._groups[number] for number in sorted(self._late)]
        chosen.append([any(FIRST in variable.shape for variable in group.variables) for group in groups])

    monkeypatch.setattr(LateCapture, "collected", noted)
    keras.utils.set_random_seed(1)
    embedding(keras).fit(trainings.data(7), verbose=0, callbacks=[checkpoint(tmp_path, every=2, final=False)])
    assert len(chosen) == 3 and all(chosen) and not any(any(late) for late in chosen)


@pytest.mark.full
@kerases.one_will_do
def test_late_captures_without_the_engines_op_are_refused_in_a_notice(keras, caplog, tmp_path):
    caplog.set_level("INFO", logger="deepfreeze")
    capture = deepfreeze.Capture(path="graph", when="late")
    trainings.dense(keras).fit(
        trainings.data(3), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path, capture=capture)]
    )
    assert 'Capture(when="late") changes nothing' in caplog.text


@pytest.mark.full
@kerases.one_will_do
def test_a_forgotten_training_holds_no_tensors(keras, tmp_path):
    """The captures rest when the run is closed: the next function that is traced copies nothing, and the variables are alone."""
    model, saving = trainings.dense(keras), checkpoint(tmp_path, every=2, final=False)

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(trainings.data(5), verbose=0, callbacks=[saving, Stop()])
    installation = saving._training._installation()
    assert installation.capture.held
    del saving
    gc.collect()
    assert not installation.capture.held
    model.fit(trainings.data(3), verbose=0)
    assert np.all(np.isfinite(model.get_weights()[0])) and h5.datasets(
        deepfreeze.latest(tmp_path / "run").path / "model.weights.h5"
    )
