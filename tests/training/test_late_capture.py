"""Late captures: what a step leaves to the next one is saved as it was at its own step, whoever writes to the variables meanwhile."""

import contextlib
import gc
import importlib
import signal
from dataclasses import dataclass, field

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.frameworks.tensorflow.late_capture import LateCapture
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.plan.schedule import Schedule
from tests.support import h5, hand_made, inputs, kerases, late, later_models, optimizers, trainings

pytestmark = pytest.mark.tensorflow
FIRST = 60_000  # words of a first layer that is nearly all of the model: 1.9 MB


@pytest.fixture
def left():
    """What was left to the next step: (step, whether that step has copied it)."""
    with late.noted() as found:
        yield found


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


def filled(keras):
    model = hand_made.of_every_dtype(keras)
    hand_made.fill(model)
    return model


def of_optimizer(name, **options):
    return lambda keras: trainings.dense(keras, getattr(keras.optimizers, name)(0.01, **options))


def of_kind(kind):
    return Way(lambda keras: hand_made.of_kind(keras, kind), lambda keras: hand_made.batches_of(keras, kind))


@dataclass
class Way:
    """A way of training. ``make`` and ``data`` are given the Keras; ``counts``: the attribute of the optimizer whose updates are the steps;
    ``late``: whether a step may be left to the next one; ``only``: the number of the one Keras that can do it; ``more``: patterns of the
    names of what stock Keras leaves out."""

    make: object
    data: object = lambda keras: trainings.data(5)
    counts: str | None = None
    late: bool = True
    only: int | None = None
    policy: str = "float32"
    more: tuple[str, ...] = ()
    fitting: dict = field(default_factory=dict)

    @contextlib.contextmanager
    def on(self, keras):
        """Skips the test if this Keras can't do it. Under the way's policy until the block's end."""
        if self.only not in (None, 2 if kerases.is_2(keras) else 3):
            pytest.skip("of the other Keras alone")
        with optimizers.precision(keras) as set_policy:
            set_policy(self.policy)
            yield


def compiled(**compiling):
    return lambda keras: trainings.dense(keras, **compiling)


def by_default(keras):
    model = trainings.dense(keras)
    model.compile("adam", "mse")
    return model


# The rows of docs/guide/trainings.md, but for the inputs and the optimizers' classes, which have tests of their own below.
WAYS = {
    "adam": Way(of_optimizer("Adam")),
    "default": Way(by_default),
    "xla": Way(compiled(jit_compile=True), late=False),
    "eager": Way(compiled(run_eagerly=True)),
    "tuned": Way(compiled(steps_per_execution="auto"), late=False, only=2),
    "averages": Way(of_optimizer("SGD", use_ema=True, ema_overwrite_frequency=2)),
    **{
        name: Way(lambda keras, make=make: trainings.dense(keras, make(keras)))
        for name, make in optimizers.TWISTS.items()
    },
    "constraints": Way(optimizers.constrained),
    "accumulates": Way(of_optimizer("Adam", gradient_accumulation_steps=2), lambda keras: trainings.data(10), only=3),
    **{policy: Way(compiled(), policy=policy) for policy in ("mixed_float16", "mixed_bfloat16", "float64")},
    "bfloat16": Way(compiled(), policy="bfloat16", only=3),
    "gan": Way(hand_made.gan, counts="generator_optimizer"),
    "early": Way(early),
    "clipped": Way(clipped),
    **{
        f"later {name}": Way(make, counts=later_models.COUNTING.get(name)) for name, make in later_models.MODELS.items()
    },
    **{kind: of_kind(kind) for kind in hand_made.KINDS},
    **{make.__name__: Way(make) for make in (hand_made.shared, hand_made.tied, hand_made.nested, hand_made.frozen)},
    "embedding": Way(embedding),
    "large first": Way(hand_made.large_first),
    "normalized": Way(normalized),
    "metrics": Way(hand_made.with_metrics),
    "dtypes": Way(filled),
    "scalars": Way(hand_made.scalars),
    "own names": Way(lambda keras: hand_made.named(keras, ("kernel", "bias"))),
    "reordered": Way(lambda keras: hand_made.named(keras, ("bias", "kernel")), only=3),
    "some": Way(lambda keras: hand_made.named(keras, ("kernel",)), only=3, more=("*.bias",)),
    "class weights": Way(
        hand_made.classifier,
        lambda keras: trainings.data(5, classes=3),
        fitting={"class_weight": {0: 1.0, 1: 2.0, 2: 0.5}},
    ),
}


def assert_late_as_keras_saves(keras, make, folder, x, left, late=True, counts=None, final=True, more=(), **fitting):
    """Trains a model by itself and others with checkpoints, which are what stock Keras saves after their step. ``late``: whether some of
    them are left to the next step, and copied by it, if every second step is saved."""
    trainings.train_undisturbed(keras, make, folder, x(), counts, **fitting)
    stock = trainings.stock_steps(folder)
    for when, every in (("late", 2), ("late", 1), ("auto", 3)):
        there = folder / f"{when}-{every}"
        there.mkdir()
        model = trainings.alike(keras, make)
        counting = {"optimizer": getattr(model, counts)} if counts else {}
        saving = checkpoint(there, when, every=every, final=final, **counting)
        model.fit(x(), callbacks=[saving], **{"verbose": 0, "shuffle": False, **fitting})
        trainings.assert_run_is(
            there / "run", folder, [s for s in stock if s % every == 0 or (final and s == stock[-1])], more=more
        )
        if every == 2:
            assert any(copied for _, copied in left) == late


@kerases.cases(WAYS, often=["adam"])
def test_late_checkpoints_are_what_keras_saves_after_their_step(keras, name, left, tmp_path):
    way = WAYS[name]
    with way.on(keras):
        assert_late_as_keras_saves(
            keras,
            lambda: way.make(keras),
            tmp_path,
            lambda: way.data(keras),
            left,
            way.late,
            way.counts,
            more=way.more,
            epochs=2,
            **way.fitting,
        )


@pytest.mark.full
@pytest.mark.parametrize(("api", "name"), optimizers.CASES)
def test_late_checkpoints_of_every_optimizer_class_are_what_keras_saves(api, name, left, tmp_path):
    keras = importlib.import_module(api)
    assert_late_as_keras_saves(
        keras,
        lambda: optimizers.trained_by(keras, name),
        tmp_path,
        lambda: trainings.data(5),
        left,
        more=optimizers.left_out(keras, name),
    )


@pytest.mark.full
def test_late_checkpoints_of_several_optimizers_are_what_keras_saves(left, tmp_path):
    """Of optimizers that Keras has put together to one."""
    if optimizers.several(keras3) is None:
        pytest.skip("this Keras has none")
    assert_late_as_keras_saves(
        keras3, lambda: optimizers.several(keras3), tmp_path, lambda: trainings.data(5), left, epochs=2
    )


@pytest.mark.full
@kerases.cases(inputs.INPUTS, often=[])
def test_late_checkpoints_of_every_kind_of_input_are_what_keras_saves(keras, name, left, tmp_path):
    fitting = inputs.INPUTS[name][1](keras)
    given = fitting.pop("x")
    assert_late_as_keras_saves(
        keras,
        lambda: trainings.dense(keras),
        tmp_path,
        lambda: given() if callable(given) else given,
        left,
        # At the end, after a validation, Keras 2's metrics are those of the validation.
        final="validation_data" not in fitting,
        **fitting,
    )


@pytest.mark.full
@kerases.cases(["again", "epochs"], name="fits")
def test_late_checkpoints_of_several_fits_are_what_keras_saves(keras, fits, left, tmp_path):
    """``fit`` again with the same callback; ``fit`` in a loop of epochs. A second ``fit`` begins with nothing left by the first."""

    def trained(callback):
        model = trainings.dense(keras)
        for number in range(3):
            epochs = {"initial_epoch": number, "epochs": number + 1} if fits == "epochs" else {}
            model.fit(trainings.data(5), verbose=0, shuffle=False, callbacks=[callback], **epochs)

    trained(trainings.save_weights(keras, tmp_path))
    trained(checkpoint(tmp_path, every=2, final=fits == "again"))
    steps = range(1, 16)
    ends = (5, 10, 15) if fits == "again" else ()
    trainings.assert_run_is(tmp_path / "run", tmp_path, [s for s in steps if s % 2 == 0 or s in ends])
    assert {step for step, copied in left if copied} >= {2, 4, 6, 8, 12, 14}


@pytest.mark.full
@kerases.cases([(0, 3), (2,), (2, 5), (4, 7)], name="skipped")
def test_late_checkpoints_beside_skipped_updates_are_what_keras_saves(keras, skipped, left, tmp_path):
    """Under mixed_float16, the batch that copies what was left may be one whose update is skipped, and whose loss scale is halved. Keras 2
    counts such a batch as a step, Keras 3 does not."""
    with optimizers.precision(keras) as set_policy:
        set_policy("mixed_float16")
        assert_late_as_keras_saves(
            keras,
            lambda: optimizers.scaled(keras),
            tmp_path,
            lambda: optimizers.overflowing(9, skipped),
            left,
        )
    assert trainings.stock_steps(tmp_path)[-1] == (9 if kerases.is_2(keras) else 9 - len(skipped))


@pytest.mark.full
@kerases.needs_keras_3
def test_late_checkpoints_of_transformed_weights_hold_their_steps_values(left, tmp_path):
    """Keras saves a layer with LoRA transformed, and DeepFreeze all of its variables: these are restored as they were after each step."""

    def values(model):
        variables = [*model.variables, *model.optimizer.variables]
        return [np.asarray(variable) for variable in variables if not variable.path.startswith("mean_metric")]

    held = {}

    class Hold(keras3.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            held[trainings.count(self.model.optimizer)] = values(self.model)

    x = trainings.data(7)
    trainings.alike(keras3, lambda: hand_made.lora(keras3)).fit(x, verbose=0, shuffle=False, callbacks=[Hold()])
    model = trainings.alike(keras3, lambda: hand_made.lora(keras3))
    model.fit(x, verbose=0, shuffle=False, callbacks=[checkpoint(tmp_path, every=2)])
    assert left == [(2, True), (4, True), (6, True)]
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4, 6, 7]
    for step in (2, 4, 6, 7):
        again = hand_made.lora(keras3)
        deepfreeze.restore(again, tmp_path / "run", step=step)
        assert all(np.array_equal(a, b) for a, b in zip(values(again), held[step], strict=True)), f"step {step}"


@pytest.mark.full
@kerases.one_will_do
def test_a_loop_of_the_users_own_with_late_captures_saves_what_keras_saves(keras, left, tmp_path):
    """Nothing is left to the next step, because captures are taken between two steps."""
    x = list(trainings.data(5))

    def steps(model):
        for features, targets in x:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(features) - targets))
            weights = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            yield

    def make():
        model = trainings.dense(keras)
        model.optimizer.build(model.trainable_variables)
        return model

    model = trainings.alike(keras, make)
    for step, _ in enumerate(steps(model), 1):
        model.save_weights(tmp_path / f"{step}.weights.h5")
    model = trainings.alike(keras, make)
    options = {"every": 2, "keep": 9, "capture": deepfreeze.Capture(when="late")}
    with deepfreeze.capture(model.optimizer, model, tmp_path / "run", **options) as saving:
        for _ in steps(model):
            saving.step()
    trainings.assert_run_is(tmp_path / "run", tmp_path, [2, 4, 5])
    assert left == []


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
