"""Models that are not built when ``fit`` begins: Keras builds them while it traces the first batch, and there they are restored."""

import importlib
import threading

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.state.training_state import METRIC, TrainingState
from tests.support import kerases, later_models, trainings

pytestmark = pytest.mark.tensorflow


def values(model):
    return {
        tensor.spec.name: np.asarray(tensor.variable)
        for tensor in TrainingState.of(model).tensors
        if tensor.kind != METRIC
    }


def assert_equal(one, other):
    mine, theirs = values(one), values(other)
    assert [v.tobytes() for v in mine.values()] == [v.tobytes() for v in theirs.values()]


def made(keras, kind):
    return trainings.alike(keras, lambda: later_models.MODELS[kind](keras))


def fit(model, batches, run=None, callbacks=(), **fitting):
    """The model's logs. ``run``: with checkpoints there."""
    counting = {name: getattr(model, name) for name in ("g_optimizer",) if hasattr(model, name)}
    if run is not None:
        callbacks = [
            deepfreeze.Checkpoint(run, verbose=0, **({"optimizer": counting["g_optimizer"]} if counting else {})),
            *callbacks,
        ]
    logs = model.fit(batches, callbacks=list(callbacks), **{"verbose": 0, "shuffle": False, **fitting}).history
    return {name: values for name, values in logs.items() if not name.startswith("deepfreeze")}


@kerases.cases(later_models.MODELS, often=[], name="kind")
def test_what_the_first_batch_builds_is_saved_as_keras_saves_it(keras, kind, tmp_path):
    """Checkpoints of a model that its first batch builds are, from the first step on, what stock Keras saves."""
    steps = trainings.assert_as_keras_saves_it(
        keras, lambda: later_models.MODELS[kind](keras), tmp_path, optimizer=later_models.COUNTING.get(kind)
    )
    assert steps == [1, 2, 3, 4, 5]


@kerases.cases(later_models.MODELS, both=["gan"], often=[], name="kind")
def test_what_the_first_batch_builds_resumes_bit_for_bit(keras, kind, tmp_path):
    """A resumed model is the uninterrupted one, and the logs of both of its trainings are those of the same batches by themselves."""
    data, run = trainings.data(6), tmp_path / "run"
    whole, first, second = (made(keras, kind) for _ in range(3))
    fit(whole, data)
    logs = fit(first, data.take(3), run)
    assert logs == fit(made(keras, kind), data.take(3))
    logs = fit(second, data.skip(3), run)
    assert [info.step for info in deepfreeze.checkpoints(run)] == [3, 6]
    assert_equal(second, whole)
    third = made(keras, kind)
    fit(third, data.take(3))
    assert logs == fit(third, data.skip(3))


@kerases.cases(["eager", "xla", "executions", "last batch"], often=[], name="way")
def test_it_is_built_and_restored_however_it_is_compiled(keras, way, tmp_path):
    compiling = {"eager": {"run_eagerly": True}, "xla": {"jit_compile": True}, "executions": {"steps_per_execution": 2}}
    data = trainings.data(6) if way != "last batch" else trainings.data(6).unbatch().batch(5)

    def make():
        model = made(keras, "sequential")
        model.compile("adam", "mse", **{"jit_compile": False, **compiling.get(way, {})})
        return model

    steps = 6 if way != "last batch" else 3
    done = steps // 3 * 2
    whole, second = make(), make()
    fit(whole, data)
    fit(make(), data.take(done), tmp_path / "run")
    fit(second, data.skip(done), tmp_path / "run")
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [done, steps]
    assert_equal(second, whole)


@pytest.mark.full
def test_a_rate_that_callbacks_set_is_not_restored_over(keras, tmp_path):
    """As where the model is built before ``fit``: callbacks of the first epoch and batch come after the restore."""

    class Rate(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.5 + epoch

    def rate(model):
        return float(np.asarray(model.optimizer.learning_rate))

    fit(made(keras, "sequential"), trainings.data(2), tmp_path / "run")
    kept, changed = made(keras, "sequential"), made(keras, "sequential")
    fit(kept, trainings.data(1), tmp_path / "run")
    assert rate(kept) == pytest.approx(1e-3)
    fit(changed, trainings.data(1), tmp_path / "run", [Rate()])
    assert rate(changed) == 0.5 and deepfreeze.latest(tmp_path / "run").step == 4


@kerases.needs_keras_3
@pytest.mark.full
def test_mixed_precision_holds_while_the_model_is_built(tmp_path):
    """Keras 3 keeps its policy, and the numbers of nameless layers, for each thread."""

    class Net(keras3.Model):
        def build(self, shape):
            self.parts = [keras3.layers.Dense(4), keras3.layers.Dense(1)]
            for part, width in zip(self.parts, (shape[-1], 4), strict=True):
                part.build((None, width))

        def call(self, x):
            return self.parts[1](self.parts[0](x))

    keras3.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        model = Net()
        model.compile("sgd", "mse", jit_compile=False)
        fit(model, trainings.data(2), tmp_path / "run")
        assert {part.dtype_policy.name for part in model.parts} == {"mixed_bfloat16"}
        assert len({part.name for part in [*model.parts, keras3.layers.Dense(2)]}) == 3
    finally:
        keras3.mixed_precision.set_global_policy("float32")


@pytest.mark.full
def test_an_error_of_the_model_s_own_stays_that_error(keras, tmp_path):
    model = keras.Sequential([keras.layers.Dense(8), keras.layers.Reshape((7,))])
    model.compile("adam", "mse", jit_compile=False)
    with pytest.raises(ValueError, match=r"[Ss]hape") as raised:
        fit(model, trainings.data(2), tmp_path / "run")
    assert not isinstance(raised.value, deepfreeze.Error) and not (tmp_path / "run").exists()


@kerases.one_will_do
def test_a_training_without_a_batch_leaves_the_model_alone(keras, tmp_path):
    model = made(keras, "sequential")
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run")
    checkpoint.set_model(model)
    checkpoint.on_train_begin()
    assert "train_step" in vars(model)
    checkpoint.on_train_end()
    assert "train_step" not in vars(model) and not (tmp_path / "run").exists()


def impossible(keras, why):
    model = made(keras, "gan")
    callbacks = []
    if why == "a train function of its own":
        kind = type(model)

        def make_train_function(self, force=False):
            self.train_function = lambda iterator: {"d_loss": tf.reduce_sum(next(iterator)[0])}
            return self.train_function

        kind.make_train_function = make_train_function
    elif why == "a callback that wraps train_step":

        class Wraps(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                step = self.model.train_step
                self.model.train_step = lambda data: step(data)
                self.model.make_train_function(force=True)

        callbacks = [Wraps()]
    else:
        step = model.train_step

        def here(data):
            assert threading.current_thread() is threading.main_thread(), "not here"
            return step(data)

        model.train_step = here
    return model, callbacks


@kerases.cases(
    ["a train function of its own", "a callback that wraps train_step", "a step for one thread"], often=[], name="why"
)
def test_what_cannot_be_built_is_told_every_line_at_once(keras, why, tmp_path):
    """The message names all parts that are not built, each with the line to paste."""
    model, callbacks = impossible(keras, why)
    with pytest.raises(deepfreeze.UnsupportedError) as raised:
        fit(model, trainings.data(2), tmp_path / "run", callbacks)
    for part in ("discriminator", "generator"):
        assert f"model.{part}.build(input_shape)" in str(raised.value)
        assert f"model.{part[0]}_optimizer.build(model.{part}.trainable_variables)" in str(raised.value)
    assert "; input_shape stands for the shape of a batch of its input with None for" in str(raised.value)
    assert "the_variables_that_it_trains" not in str(raised.value), "they are known"
    assert not (tmp_path / "run").exists()


@kerases.one_will_do
def test_a_line_that_cannot_say_all_says_what_to_put_there(keras, tmp_path):
    model = made(keras, "gan")
    model.critic_optimizer = model.d_optimizer  # of no part whose name begins so
    del model.d_optimizer
    with pytest.raises(deepfreeze.UnsupportedError) as raised:
        deepfreeze.Checkpoint(tmp_path / "run", optimizer=model.g_optimizer).open(model)
    assert "model.critic_optimizer.build(the_variables_that_it_trains)" in raised.value.todo
    assert "; the_variables_that_it_trains stands for the list of variables that train_step" in raised.value.todo


@kerases.one_will_do
def test_open_names_every_line_and_a_shape_that_is_known(keras, tmp_path):
    """``open`` sees no batch, so it can't build; where the first batch is known, the line has its shape."""
    with pytest.raises(deepfreeze.UnsupportedError, match=r"Call model\.build\(input_shape\) first"):
        deepfreeze.Checkpoint(tmp_path / "run").open(made(keras, "sequential"))
    model = made(keras, "gan")
    with pytest.raises(deepfreeze.UnsupportedError, match=r"generator\.build.* and .*model\.g_optimizer\.build"):
        deepfreeze.Checkpoint(tmp_path / "run", optimizer=model.g_optimizer).open(model)


@pytest.mark.full
def test_stock_keras_2_loads_the_optimizer_after_the_line_that_show_says(tmp_path):
    keras = importlib.import_module(kerases.NAMES[-1])
    trained = trainings.dense(keras)
    fit(trained, trainings.data(3), tmp_path / "run")
    for built in (False, True):
        stock = trainings.dense(keras)
        if built:
            stock.optimizer.build(stock.trainable_variables)
        stock.load_weights(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
        assert (trainings.count(stock.optimizer) == 3) is built
