"""Models whose ``train_step`` decides what their optimizers train: a distiller, GANs that keep their optimizers in containers."""

import contextlib
import signal
import warnings

import numpy as np
import pytest

import deepfreeze
from deepfreeze.format import dataset_groups
from deepfreeze.frameworks.tensorflow.first_trace import begins_with_trace
from deepfreeze.state.keras_objects import is_built
from deepfreeze.state.training_state import METRIC, TrainingState
from tests.support import jobs, kerases, own_steps, trainings

pytestmark = pytest.mark.tensorflow

PROGRAMS = own_steps.DISTILLERS | own_steps.GANS


def programs(keras):
    return [name for name in PROGRAMS if not (kerases.is_2(keras) and name == "accumulating")]


def made(keras, kind):
    if kerases.is_2(keras) and kind == "accumulating":
        pytest.skip("Keras 2 has no gradient_accumulation_steps")
    return trainings.alike(keras, lambda: PROGRAMS[kind](keras))


def fit(model, data, run=None, *callbacks, **options):
    if run is not None:
        callbacks = (deepfreeze.Checkpoint(run, verbose=0, **own_steps.counting(model), **options), *callbacks)
    return model.fit(data, verbose=0, shuffle=False, callbacks=list(callbacks))


def values(model):
    return [np.asarray(t.variable).tobytes() for t in TrainingState.of(model).tensors if t.kind != METRIC]


@kerases.cases(PROGRAMS, both=["distiller"], often=["in_list"], name="kind")
def test_a_model_that_trains_itself_is_saved_as_keras_saves_it(keras, kind, tmp_path):
    """Each checkpoint has the datasets of stock ``save_weights``, no slot more: those for the variables that the step trains."""
    model, stock = made(keras, kind), made(keras, kind)
    fit(
        stock,
        trainings.data(4),
        None,
        trainings.save_weights(keras, tmp_path, own_steps.counting(stock).get("optimizer")),
    )
    fit(model, trainings.data(4), tmp_path / "run", every=1, keep=9)
    trainings.assert_run_is(tmp_path / "run", tmp_path, trainings.stock_steps(tmp_path))


@kerases.cases(PROGRAMS, often=["decorated"], name="kind")
def test_a_model_that_trains_itself_resumes_bit_for_bit(keras, kind, tmp_path):
    data, run = trainings.data(8), tmp_path / "run"
    whole, first, second = (made(keras, kind) for _ in range(3))
    fit(whole, data)
    fit(first, data.take(4), run)
    fit(second, data.skip(4), run)
    assert values(second) == values(whole) and len(deepfreeze.checkpoints(run)) == 2


@kerases.cases(["distiller", "frozen", "scaled"], often=["distiller"], name="kind")
def test_stock_keras_loads_the_weights_and_the_optimizer(keras, kind, tmp_path):
    """The optimizer that stock Keras would have built takes all that the file has, without a warning."""
    trained, stock = made(keras, kind), made(keras, kind)
    fit(trained, trainings.data(4), tmp_path / "run")
    stock.optimizer.build(stock.student.trainable_variables)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stock.load_weights(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")
    for name in ("weights", "optimizer"):
        mine, theirs = (getattr(model, name) for model in (trained, stock))
        if name == "optimizer":
            mine, theirs = mine.variables, theirs.variables
        assert [np.asarray(v).tobytes() for v in mine] == [np.asarray(v).tobytes() for v in theirs]


@kerases.cases(PROGRAMS, often=["distiller"], name="kind")
def test_open_and_restore_give_such_a_model_all_that_was_saved(keras, kind, tmp_path):
    """``open`` gives it the weights, and ``fit`` the optimizers, which ``train_step`` builds; ``restore`` builds the compiled one."""
    data, run = trainings.data(8), tmp_path / "run"
    whole, first, second, third = (made(keras, kind) for _ in range(4))
    fit(whole, data)
    fit(first, data.take(4), run)
    checkpoint = deepfreeze.Checkpoint(run, verbose=0, **own_steps.counting(second))
    done = deepfreeze.latest(run).step
    assert checkpoint.open(second) == done and checkpoint.open(second) == done
    assert np.array_equal(second.weights[0], first.weights[0])
    second.fit(data.skip(4), verbose=0, callbacks=[checkpoint])
    assert values(second) == values(whole)
    if kind in own_steps.DISTILLERS:
        assert deepfreeze.restore(third, run).step == 2 * done
        assert values(third) == values(whole)


@kerases.cases(["distiller"], often=[], name="kind")
def test_a_run_with_slots_for_all_is_resumed_by_the_message_s_line(keras, kind, tmp_path):
    """Versions that did not ask what ``train_step`` trains built the optimizer for the model's whole list."""
    run = tmp_path / "run"
    older, now, built = (made(keras, kind) for _ in range(3))
    older.optimizer.build(older.trainable_variables)
    fit(older, trainings.data(4), run)
    with pytest.raises(deepfreeze.StructureError) as raised:
        fit(now, trainings.data(4), run)
    line = "model.optimizer.build(model.trainable_variables)"
    assert "train_step trains 4 of the 8 variables in model.trainable_variables" in raised.value.todo
    assert f"call {line} before fit" in raised.value.todo
    exec(line, {"model": built})
    fit(built, trainings.data(4), run)
    assert [info.step for info in deepfreeze.checkpoints(run)] == [4, 8]


@kerases.cases(["here", "eager"], often=["here"], name="why")
def test_a_step_that_can_t_be_traced_before_trains_the_model_s_list(keras, why, tmp_path):
    """The optimizer is built for the model's list, as always; a step that then trains more is refused, with the line to write."""
    with pytest.raises(deepfreeze.UnsupportedError) as raised:
        fit(own_steps.wider(keras, **{why: True}), trainings.data(2), tmp_path / "run")
    assert "scale" in raised.value.found and "model.optimizer.build(the_variables_that_it_trains)" in raised.value.todo
    assert not deepfreeze.checkpoints(tmp_path / "run")
    model = own_steps.wider(keras, **{why: True})
    model.optimizer.build([*model.net.trainable_variables, *model.holder.weights])
    fit(model, trainings.data(2), tmp_path / "other")
    assert deepfreeze.latest(tmp_path / "other").step == 2


@pytest.mark.full
def test_a_callback_may_wrap_the_step_of_a_model_that_trains_itself(keras, tmp_path):
    """It comes behind ``Checkpoint``, whose captures lie below its function then."""
    calls = []

    class Wraps(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            step = self.model.train_step

            def wrapped(data):
                calls.append(1)
                return step(data)

            self.model.train_step = wrapped
            self.model.make_train_function(force=True)

    whole, first, second = (made(keras, "distiller") for _ in range(3))
    fit(whole, trainings.data(8))
    fit(first, trainings.data(8).take(4), tmp_path / "run", Wraps())
    fit(second, trainings.data(8).skip(4), tmp_path / "run", Wraps())
    assert calls and values(second) == values(whole)


@pytest.mark.full
def test_an_optimizer_that_a_trace_has_seen_is_not_traced_for_again(keras, tmp_path):
    """The default one of a GAN is never built: its second ``fit``, and another ``Checkpoint``, begin as for any other model."""
    model = made(keras, "in_list")
    fit(model, trainings.data(2), tmp_path / "run")
    assert not begins_with_trace(model) and not is_built(model.optimizer)
    fit(model, trainings.data(2), tmp_path / "run")
    assert deepfreeze.latest(tmp_path / "run").step == 4
    assert not begins_with_trace(trainings.dense(keras)) and begins_with_trace(made(keras, "distiller"))


@pytest.mark.full
def test_a_teacher_that_was_compiled_keeps_its_optimizer_as_in_keras(keras, tmp_path):
    """Keras saves the optimizer of a model inside of the model. One that was compiled and never trained has no part."""

    def make(trained):
        model = own_steps.distiller(keras)
        model.teacher.compile("adam", "mse", jit_compile=False)
        if trained:
            model.teacher.optimizer.build(model.teacher.trainable_variables)
        return model

    for trained in (False, True):
        folder = tmp_path / str(trained)
        folder.mkdir()
        assert trainings.assert_as_keras_saves_it(keras, lambda trained=trained: make(trained), folder) == [
            1,
            2,
            3,
            4,
            5,
        ]


@kerases.cases(["distiller", "in_dict"], often=[], name="kind")
def test_a_killed_process_that_trains_itself_goes_on_bit_for_bit(keras, kind, tmp_path):
    def train(run, killed_at=0):
        api = "tf_keras" if keras.__name__.startswith("tf_keras") else "keras"
        legacy = "1" if api == "tf_keras" else "0"
        with jobs.job("trains_itself.py", api, tmp_path / run, kind, killed_at, TF_USE_LEGACY_KERAS=legacy) as started:
            assert started.wait() == (-signal.SIGKILL if killed_at else 0), started.tails()
            return [line for line in started.output().splitlines() if line.startswith("after ")]

    (whole,) = train("whole")
    assert train("run", killed_at=3) == []
    (resumed,) = train("run")
    assert whole.startswith("after 0: ") and resumed == whole.replace("after 0", "after 3")


@kerases.cases(["gan", "in_list"], often=[], name="kind")
def test_optimizers_in_containers_are_no_weights_of_the_checkpoint(keras, kind, tmp_path):
    """Commands and ``read`` tell them from weights, and a model that is not compiled takes the weights alone."""
    trained, fresh = made(keras, kind), made(keras, kind)
    fit(trained, trainings.data(3), tmp_path / "run")
    with deepfreeze.read(tmp_path / "run") as reader:
        kinds = list(dataset_groups.kinds(reader.structure).values())
    assert kinds.count(dataset_groups.WEIGHT) == len(trained.weights) == 8
    assert kinds.count(dataset_groups.OPTIMIZER) == len(kinds) - 8 - kinds.count(dataset_groups.METRIC)
    fresh.optimizer = None
    assert deepfreeze.restore(fresh, tmp_path / "run").step == 3
    assert all(map(np.array_equal, fresh.weights, trained.weights))


@pytest.mark.full
def test_a_model_that_trains_itself_goes_on_inside_of_its_epoch(keras, tmp_path):
    """With ``data=`` its optimizer is built before ``fit`` chooses the batch to begin with."""
    rng = np.random.default_rng(0)
    x, y = rng.random((16, trainings.FEATURES), np.float32), rng.random((16, 1), np.float32)

    def train(steps=None):
        model = made(keras, "distiller")
        data = deepfreeze.data.Resumable((x, y), batch_size=2, seed=1)

        class Stops(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if trainings.count(self.model.optimizer) == steps:
                    raise KeyboardInterrupt

        run = tmp_path / ("whole" if steps is None and not (tmp_path / "run").exists() else "run")
        checkpoint = deepfreeze.Checkpoint(run, every=1, verbose=0, data=data, wait_for="external")
        with contextlib.suppress(KeyboardInterrupt):
            model.fit(data, epochs=2, verbose=0, callbacks=[checkpoint, Stops()])
        checkpoint.close()
        return model

    whole = train()
    train(steps=5)
    assert deepfreeze.latest(tmp_path / "run").step == 5
    assert values(train()) == values(whole)
