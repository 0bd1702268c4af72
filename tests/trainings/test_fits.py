"""Whatever fit is given and however often it is called, each checkpoint is what Keras would have saved after that step."""

import keras as keras3
import numpy as np
import pytest

import deepfreeze
from tests.support import trainings


def arrays(n=10):
    rng = np.random.default_rng(0)
    return rng.random((n, trainings.FEATURES), np.float32), rng.random((n, 1), np.float32)


def generator():
    x, y = arrays()
    while True:
        yield from ((x[i : i + 2], y[i : i + 2]) for i in range(0, 10, 2))


class Batches(getattr(keras3.utils, "PyDataset", keras3.utils.Sequence)):
    """Keras's own kind of input."""

    def __len__(self):
        return 5

    def __getitem__(self, i):
        x, y = arrays()
        return x[2 * i : 2 * i + 2], y[2 * i : 2 * i + 2]


INPUTS = {
    "numpy": lambda: {"x": arrays()[0], "y": arrays()[1], "batch_size": 2},
    "shuffled": lambda: {"x": arrays()[0], "y": arrays()[1], "batch_size": 2, "shuffle": True},
    "tf.data": lambda: {"x": trainings.data(5)},
    "generator": lambda: {"x": generator(), "steps_per_epoch": 5},
    "a last batch that is smaller": lambda: {"x": arrays(9)[0], "y": arrays(9)[1], "batch_size": 2},
    "sample weights": lambda: {"x": (*arrays(), np.ones(10)), "batch_size": 2},
    "validation data": lambda: {"x": trainings.data(5), "validation_data": trainings.data(2)},
    "validation within an epoch": lambda: {"x": trainings.data(5), "validation_data": trainings.data(2), "epochs": 2},
    "epochs": lambda: {"x": trainings.data(3), "epochs": 3},
}


@pytest.mark.parametrize("name", INPUTS)
def test_every_kind_of_input_trains_and_is_saved(keras, name, tmp_path):
    fitting = INPUTS[name]()
    if name == "sample weights":
        x, y, weights = fitting.pop("x")
        fitting |= {"x": x, "y": y, "sample_weight": weights}
    steps = trainings.assert_as_keras_saves_it(keras, trainings.dense(keras), tmp_path, **fitting)
    assert steps == list(range(1, (9 if name == "epochs" else 10 if "within" in name else 5) + 1))


def test_a_pydataset_trains_and_is_saved(tmp_path):
    model = trainings.dense(keras3)
    assert trainings.assert_as_keras_saves_it(keras3, model, tmp_path, Batches()) == [1, 2, 3, 4, 5]


def test_class_weights_train_and_are_saved(keras, tmp_path):
    layers = [keras.Input((trainings.FEATURES,)), keras.layers.Dense(3, "softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    batches = trainings.data(5, classes=3)
    trainings.assert_as_keras_saves_it(keras, model, tmp_path, batches, class_weight={0: 1.0, 1: 2.0, 2: 0.5})


def test_an_eager_training_is_saved(keras, tmp_path):
    trainings.assert_as_keras_saves_it(keras, trainings.dense(keras, run_eagerly=True), tmp_path)


def test_a_third_fit_with_the_same_callback_goes_on(keras, tmp_path):
    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9)
    callbacks = [trainings.save_weights(keras, tmp_path), checkpoint]
    for _ in range(3):
        model.fit(trainings.data(3), verbose=0, shuffle=False, callbacks=callbacks)
    assert trainings.assert_run_is(tmp_path / "run", tmp_path) == [2, 3, 4, 6, 8, 9]


def test_fit_in_a_loop_of_epochs_is_one_training(keras, tmp_path):
    model = trainings.dense(keras)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=5, keep=9, final=False)
    callbacks = [trainings.save_weights(keras, tmp_path), checkpoint]
    for epoch in range(4):
        model.fit(
            trainings.data(3), verbose=0, shuffle=False, callbacks=callbacks, initial_epoch=epoch, epochs=epoch + 1
        )
    assert trainings.assert_run_is(tmp_path / "run", tmp_path) == [5, 10]


def test_one_callback_takes_one_model_after_the_other(keras, tmp_path):
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, resume="off")
    for _ in range(2):
        trainings.dense(keras).fit(trainings.data(3), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 3]


def test_evaluation_and_prediction_with_the_callback_do_nothing(keras, tmp_path):
    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run")
    model.evaluate(trainings.data(2), verbose=0, callbacks=[checkpoint])
    model.predict(trainings.data(2), verbose=0, callbacks=[checkpoint])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_what_was_captured_before_an_exception_is_committed(keras, kind, tmp_path):
    class Fail(keras.callbacks.Callback):
        """Raises in the fifth batch."""

        def on_train_batch_begin(self, batch, logs=None):
            if batch == 4:
                raise kind("the user's own")

    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9)
    callbacks = [trainings.save_weights(keras, tmp_path), checkpoint, Fail()]
    with pytest.raises(kind, match="own"):
        model.fit(trainings.data(8), verbose=0, shuffle=False, callbacks=callbacks)
    checkpoint.close()
    again = deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9)
    assert again.open(trainings.dense(keras)) == 4
    again.close()
    assert trainings.assert_run_is(tmp_path / "run", tmp_path) == [2, 4]
