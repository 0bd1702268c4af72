"""What a callback may do to the optimizer and the train function inside of one ``fit``, which is more than Keras's guides have: no ``fit``
goes on with its checkpoints silently ended."""

import itertools
import warnings

import numpy as np
import pytest

import deepfreeze
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow

BATCHES = 4  # in each of two epochs
MODES = {"graph": {"jit_compile": False}, "eager": {"run_eagerly": True}, "xla": {"jit_compile": True}}
WHENS = ("batch end", "batch begin", "epoch begin", "epoch end")
ORDERS = ("before", "behind")  # of our callback


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    """Each test is a process of its own."""
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.last_trainings", {})


def anew(model):
    made = model.make_train_function(force=True)
    if made is not None:  # Keras 2
        model.train_function = made


def compiles(model, optimizer, mode):
    model.compile(optimizer, "mse", metrics=["mae"], **MODES[mode])


def made_anew(keras, model, mode):
    anew(model)


def compiled_with_its_optimizer(keras, model, mode):
    compiles(model, model.optimizer, mode)
    anew(model)


def frozen(keras, model, mode):
    model.layers[1].trainable = False
    compiled_with_its_optimizer(keras, model, mode)


def own_train_step(keras, model, mode):
    inner = type(model).train_step.__get__(model)
    model.train_step = lambda *args, **kwargs: inner(*args, **kwargs)
    anew(model)


def compiled(keras, model, mode):
    compiles(model, "sgd", mode)


def other_optimizer(keras, model, mode):
    compiles(model, keras.optimizers.SGD(), mode)
    anew(model)


def other_attribute(keras, model, mode):
    model.optimizer = keras.optimizers.SGD()
    model.optimizer.build(model.trainable_variables)
    anew(model)


def attribute_alone(keras, model, mode):
    model.optimizer = keras.optimizers.SGD()
    model.optimizer.build(model.trainable_variables)


def more_variables(keras, model, mode):
    layer = model.layers[1]
    layer.trainable = False
    if kerases.is_2(keras):
        layer.add_weight(name="lora", shape=(1,), trainable=False)
    else:
        layer.enable_lora(1)
    anew(model)


def set_back(keras, model, mode):
    model.optimizer.iterations.assign(2)


GO_ON = [made_anew, compiled_with_its_optimizer, frozen, own_train_step]
END = {
    other_optimizer: (deepfreeze.UnsupportedError, "found another SGD"),
    other_attribute: (deepfreeze.UnsupportedError, "found another SGD"),
    more_variables: (deepfreeze.UnsupportedError, "others: .*lora"),
    set_back: (deepfreeze.RunError, "goes on from"),
    compiled: (TypeError, "NoneType"),
}


def table(changes, often):
    """A sweep over all cases; those in ``often`` are tried in `make test`."""
    cases = []
    for keras, case in itertools.product(kerases.NAMES, itertools.product(changes, MODES, WHENS, ORDERS)):
        name = "-".join([keras, case[0].__name__, *case[1:]]).replace(" ", "_")
        often_here = (keras, case[0].__name__, *case[1:]) in often
        cases.append(pytest.param(keras, *case, id=name, marks=[] if often_here else pytest.mark.full))
    return pytest.mark.parametrize(("keras", "change", "mode", "when", "order"), cases, indirect=["keras"])


def make(keras, mode):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((trainings.FEATURES,)), keras.layers.BatchNormalization(), keras.layers.Dense(8, "relu")]
    model = keras.Sequential([*layers, keras.layers.Dense(1)])
    compiles(model, keras.optimizers.Adam(0.01), mode)
    return model


def train(keras, change, mode, when, order, folder):
    """Trains with one change in the second epoch. Returns the model, the last step before the change and the number of batches trained."""

    class Changes(keras.callbacks.Callback):
        at = None
        batches = 0
        epoch = 0

        def _change(self, when_now, *place):
            if when_now == when and self.epoch == 1 and self.at is None and place in ((), (1,)):
                self.at = trainings.count(self.model.optimizer)
                change(keras, self.model, mode)

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch
            self._change("epoch begin")

        def on_train_batch_begin(self, batch, logs=None):
            self._change("batch begin", batch)

        def on_train_batch_end(self, batch, logs=None):
            self.batches += 1
            self._change("batch end", batch)

        def on_epoch_end(self, epoch, logs=None):
            self.epoch = epoch + 1  # the first epoch's end
            self._change("epoch end")

    changes = Changes()
    checkpoint = deepfreeze.Checkpoint(folder / "run", every=1, keep=99, verbose=0)
    both = [changes, checkpoint] if order == "before" else [checkpoint, changes]
    model = make(keras, mode)
    fitting = {"epochs": 2, "verbose": 0, "shuffle": False}
    stock = trainings.save_weights(keras, folder, model.optimizer)
    try:
        model.fit(trainings.data(BATCHES), callbacks=[stock, *both], **fitting)
    finally:
        checkpoint.close()
    return model, changes


@table(
    GO_ON,
    often=[
        ("keras", "own_train_step", "graph", "epoch begin", "behind"),
        ("tf_keras", "compiled_with_its_optimizer", "graph", "batch end", "before"),
    ],
)
def test_captures_go_on_in_a_train_function_that_is_made_anew(keras, change, mode, when, order, tmp_path):
    model, changes = train(keras, change, mode, when, order, tmp_path)
    assert changes.at in (BATCHES, BATCHES + 1, BATCHES + 2)
    trainings.assert_run_is(tmp_path / "run", tmp_path, list(range(1, 2 * BATCHES + 1)))
    assert not {"apply", "apply_gradients", "make_train_function"} & {*vars(model), *vars(model.optimizer)}


@table(
    END,
    often=[
        ("keras", "other_optimizer", "graph", "epoch begin", "behind"),
        ("keras", "set_back", "graph", "batch end", "behind"),
    ],
)
def test_a_fit_that_would_save_no_further_step_ends(keras, change, mode, when, order, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind, message = END[change]
    found = []
    with pytest.raises(kind, match=message) as caught:
        found = train(keras, change, mode, when, order, tmp_path)
    if kind is not TypeError:
        assert 'deepfreeze.Checkpoint("run-phase-2")' in caught.value.todo
    steps = [info.step for info in deepfreeze.checkpoints("run")]
    last = {"epoch end": BATCHES, "epoch begin": BATCHES, "batch begin": BATCHES + 1, "batch end": BATCHES + 2}[when]
    if change in (set_back, more_variables) and (when, order) == ("batch end", "before"):
        last -= 1  # the step has lost its number, or a part of its state, before our callback has asked for it
    assert steps == list(range(1, last + 1)) and not found and not (tmp_path / "run" / "abandoned").exists()
    trainings.assert_run_is("run", tmp_path, steps)


@table([attribute_alone], often=[])
def test_another_optimizer_alone_changes_nothing_but_where_keras_asks_it(keras, change, mode, when, order, tmp_path):
    """Keras goes on with the function that it has traced; with ``run_eagerly`` it asks the model for its optimizer in each step."""
    if mode == "eager":
        with pytest.raises(deepfreeze.UnsupportedError, match="another SGD"):
            train(keras, change, mode, when, order, tmp_path)
        return
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model, _ = train(keras, change, mode, when, order, tmp_path)
    assert sum("goes on with the train function" in str(one.message) for one in told) == 1
    restored = make(keras, mode)
    deepfreeze.restore(restored, tmp_path / "run")
    assert trainings.count(restored.optimizer) == 2 * BATCHES and trainings.count(model.optimizer) == 0
    assert all(map(np.array_equal, restored.get_weights(), model.get_weights()))
