"""The resumable input in ``fit``, ``evaluate`` and ``predict`` of each Keras, and as a ``tf.data.Dataset``."""

import copy
import threading

import numpy as np
import pytest

from deepfreeze.data import Resumable
from deepfreeze.data.order import order
from deepfreeze.errors import OptionError
from tests.support import kerases

pytestmark = pytest.mark.tensorflow

ITEMS = 22


def numbers(length=ITEMS):
    """A source whose items are their own numbers."""
    x = np.arange(length, dtype=np.float32)
    return x[:, None], x[:, None] / length


def recording(keras):
    """A model that remembers the items that it is trained on."""
    import tensorflow as tf

    class Recording(keras.Model):
        def train_step(self, data):
            tf.py_function(lambda x: self.seen.extend(x.numpy().ravel().astype(int).tolist()), [data[0]], [])
            return super().train_step(data)

    inputs = keras.Input((1,))
    model = Recording(inputs, keras.layers.Dense(1)(inputs))
    model.seen = []
    model.compile(keras.optimizers.SGD(1e-4), "mse")
    return model


def seen(model):
    found, model.seen = list(model.seen), []
    return found


def orders(*epochs, seed=7):
    return [item for epoch in epochs for item in order(seed, epoch, ITEMS).tolist()]


def test_fit_with_default_arguments_keeps_the_order(keras, recwarn):
    """Also with several fits, and with validation, evaluation and prediction on the same object in between."""
    data, model = Resumable(numbers(), 4, seed=7, threads=2), recording(keras)
    model.fit(data, epochs=2, validation_data=data, verbose=0)
    assert seen(model) == orders(0, 1) and data.epoch == 2
    loss = model.evaluate(data, verbose=0)
    assert loss == pytest.approx(model.evaluate(*numbers(), batch_size=4, verbose=0), rel=1e-5)
    assert np.allclose(model.predict(data, verbose=0), model.predict(numbers()[0], verbose=0), atol=1e-5)
    model.fit(data, verbose=0)
    model.fit(data, initial_epoch=1, epochs=3, verbose=0)
    assert seen(model) == orders(2, 3, 4)
    assert not [thread for thread in threading.enumerate() if thread.name == "deepfreeze-data"]
    assert not [w for w in recwarn if "ran out of data" in str(w.message)]


@pytest.mark.parametrize("late", [False, True], ids=["before", "in_on_train_begin"])
def test_a_fit_that_begins_within_an_epoch_trains_its_rest_alone(keras, late, recwarn):
    state = Resumable(numbers(), 4, seed=7).state_at(3, 2)
    data, model = Resumable(numbers(), 4, seed=7), recording(keras)

    class Restores(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            data.set_state(state)

    if not late:
        data.set_state(state)
        assert (data.epoch, len(data), data.batches_done) == (3, 4, 2)
    model.fit(data, epochs=3, verbose=0, callbacks=[Restores()] if late else [])
    assert seen(model) == orders(3)[8:] + orders(4, 5)
    assert not [w for w in recwarn if "ran out of data" in str(w.message)]


def test_a_fit_that_was_interrupted_goes_on_behind_what_was_trained(keras):
    """The first fit's thread is still asking for batches when the second one has begun."""
    data, model = Resumable(numbers(), 1, seed=7), recording(keras)

    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            data.advance()
            if batch == 4 and data.state()["items"] == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:  # with its frames, and so with Keras's iterator
        model.fit(data, verbose=0, callbacks=[Stops()])
    assert data.epoch == 0 and seen(model)[:5] == orders(0)[:5]
    model.fit(data, epochs=2, verbose=0)
    assert seen(model) == orders(0)[5:] + orders(1)
    del kept


class Interrupted(Exception):
    """In place of Ctrl-C, within an ``evaluate``."""


@pytest.fixture
def beside(keras):
    """A callback that calls a function of the model and the batch, before each batch and before each epoch."""

    class Beside(keras.callbacks.Callback):
        def __init__(self, call):
            super().__init__()
            self.call = call

        def on_epoch_begin(self, epoch, logs=None):
            self.call(self.model, -1)

        def on_train_batch_begin(self, batch, logs=None):
            self.call(self.model, batch)

    return Beside


@kerases.one_will_do
@pytest.mark.parametrize("how", ["whole", pytest.param("interrupted", marks=pytest.mark.full)])
def test_many_evaluations_within_an_epoch_take_nothing_from_it(keras, beside, how):
    data, model = Resumable(numbers(), 4, seed=7), recording(keras)
    raising = keras.callbacks.LambdaCallback(on_test_batch_begin=lambda batch, logs: raises())

    def raises():
        raise Interrupted

    def call(model, batch):
        if how == "interrupted" and batch in (-1, 1):
            for _ in range(9):
                with pytest.raises(Interrupted):
                    model.evaluate(data, verbose=0, callbacks=[raising])
        elif batch in (-1, 1):
            for _ in range(5):
                assert model.evaluate(data, verbose=0) >= 0
                assert len(model.predict(data, verbose=0)) == ITEMS

    model.fit(data, epochs=1, verbose=0, callbacks=[beside(call)])
    assert seen(model) == orders(0)
    model.fit(data, verbose=0)
    assert seen(model) == orders(1)


@kerases.one_will_do
def test_a_loop_in_a_callback_takes_nothing_from_the_fit(keras, beside):
    """Nobody can tell it from one that only looks: it gets all items, with one warning."""
    data, model, said, found = Resumable(numbers(), 4, seed=7), recording(keras), [], []
    data.notify = lambda level, message: said.append((level, message))
    dataset = data.dataset()

    def call(model, batch):
        if batch in (-1, 2):
            found.extend([next(iter(data))[0].ravel().tolist(), next(iter(dataset))[0].numpy().ravel().tolist()])

    model.fit(data, epochs=2, verbose=0, callbacks=[beside(call)])
    assert seen(model) == orders(0, 1)
    assert found == [[0.0, 1.0, 2.0, 3.0]] * 8
    ((level, message),) = said
    assert level == "warning" and "while fit goes over it" in message
    assert items_of(next(iter(data))) == orders(2)[:4], "after the fit a loop is an epoch"


def items_of(batch):
    return batch[0].ravel().astype(int).tolist()


@kerases.one_will_do
def test_a_fit_within_a_fit_over_the_same_data_is_refused(keras, beside):
    data, model, other = Resumable(numbers(), 4, seed=7), recording(keras), recording(keras)
    refused = []

    def call(model, batch):
        if batch in (-1, 2):
            with pytest.raises(OptionError, match=r"one fit at a time.*copy\.deepcopy\(data\)") as found:
                other.fit(data, verbose=0)
            refused.append(found)
            other.fit(copy.deepcopy(data), verbose=0)

    model.fit(data, epochs=2, verbose=0, callbacks=[beside(call)])
    assert seen(model) == orders(0, 1) and len(refused) == 4 and len(seen(other)) == 4 * ITEMS


def test_horovods_mean_over_uneven_shares_is_the_mean_over_the_items(keras):
    """Of the updates of real models: the mean of those that the ranks' shares give is that of the whole batch."""
    ranks = 4
    x = np.random.default_rng(1).random((11, 3)).astype(np.float32)
    y = x.sum(1, keepdims=True) ** 2
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    begin = model.get_weights()

    def update(*batch):
        model.set_weights(begin)
        model.train_on_batch(*batch)
        return [after - before for after, before in zip(model.get_weights(), begin, strict=True)]

    for step in range(2):
        inputs = [Resumable((x, y), global_batch=8, shuffle=False, rank=rank, ranks=ranks) for rank in range(ranks)]
        shares = [update(*list(data)[step]) for data in inputs]
        whole = update(x[8 * step : 8 * step + 8], y[8 * step : 8 * step + 8])
        for parts, all_of_it in zip(zip(*shares, strict=True), whole, strict=True):
            assert np.allclose(np.mean(parts, 0), all_of_it, atol=1e-6)


def test_a_fit_on_uneven_shares_has_weights_in_every_batch(keras):
    data, model = Resumable(numbers(), global_batch=8, seed=7, rank=2, ranks=4), recording(keras)
    model.fit(data, epochs=2, validation_data=data, verbose=0)
    # 22 items are two global batches of 8 and one of 6, of which the third of four ranks has one.
    assert seen(model) == [item for epoch in (0, 1) for at in (4, 5, 12, 13, 20) for item in orders(epoch)[at : at + 1]]


@kerases.one_will_do
def test_predictions_within_a_fit_on_uneven_shares_do_not_end_it(keras, beside):
    """Their batches have no weights, and those of the fit do."""
    data, model = Resumable(numbers(), global_batch=8, seed=7, rank=2, ranks=4), recording(keras)
    model.fit(data, epochs=2, verbose=0, callbacks=[beside(lambda model, batch: model.predict(data, verbose=0))])
    assert len(seen(model)) == 10


@kerases.one_will_do
def test_evaluate_may_come_before_the_uneven_rest_of_an_epoch(keras):
    """Its batches are those of a whole epoch, which need no weights."""
    data, model = Resumable(numbers(24), 2, rank=0, ranks=4), recording(keras)
    data.begin(0, 18)
    model.evaluate(data, verbose=0)
    model.fit(data, epochs=1, verbose=0)
    model.evaluate(data, verbose=0)
    assert len(seen(model)) == 2


def test_weights_that_keras_was_not_shown_are_refused(keras):
    data, model = Resumable(numbers(24), 2, rank=0, ranks=4), recording(keras)

    class Restores(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            data.begin(0, 18)

    weighted = "found batches with sample weights: epoch 0 has 6 items, dealt 8 at a time, and 4 ranks"
    with pytest.raises(
        Exception, match=f"batches without sample weights, as Keras was shown when fit began; {weighted}"
    ):
        model.fit(data, verbose=0, callbacks=[Restores()])
    data.begin(0, 18)
    model.fit(data, epochs=2, verbose=0)


def test_a_fit_that_would_ask_in_no_fixed_order_is_refused(keras):
    data, model = Resumable(numbers(), 4), recording(keras)
    wrong = [{"steps_per_epoch": 3}]
    if kerases.is_2(keras):
        wrong += [{"workers": 4}, {"use_multiprocessing": True}]
    else:
        with pytest.raises(OptionError, match="expected one worker"):
            data.workers = 4
    for given in wrong:
        with pytest.raises(OptionError, match=r"fit\(.*(steps_per_epoch|workers)"):
            model.fit(data, verbose=0, **given)
    assert seen(model) == []


def test_batches_of_a_keras_source_are_dealt_as_they_are(keras):
    class Triples(keras.utils.Sequence):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            return [numbers()[part][3 * index : 3 * index + 3] for part in (0, 1)]

    with pytest.raises(OptionError, match="batch_size=, global_batch=: expected neither"):
        Resumable(Triples(), 4)
    model = recording(keras)
    model.fit(Resumable(Triples(), seed=7), verbose=0)
    assert seen(model) == [item for batch in order(7, 0, 5) for item in range(3 * batch, 3 * batch + 3)]
    augmented = Resumable(Triples(), seed=7, augment=lambda batch, rng: (-batch[0], batch[1]))
    plain = [x for x, _ in Resumable(Triples(), seed=7)]
    assert np.array_equal([-x for x, _ in augmented], plain)


def test_a_dataset_is_one_epoch_in_each_iteration():
    import tensorflow as tf

    def augment(item, rng):
        x, y = item
        return {"x": x, "noise": tf.random.stateless_uniform((2,), seed=rng.seed_pair)}, y

    data = Resumable(numbers(), 5, seed=7, augment=augment)
    data.begin(0, 5)
    dataset = data.dataset()
    assert dataset.element_spec[0]["noise"] == tf.TensorSpec((None, 2), tf.float32)
    first, second = list(dataset), list(dataset)
    for batches, items in [(first, orders(0)[5:]), (second, orders(1))]:
        assert np.concatenate([batch[0]["x"].numpy().ravel() for batch in batches]).tolist() == items
    again = Resumable(numbers(), 5, seed=7, augment=augment)
    again.begin(1)
    for one, other in zip(second, again, strict=True):
        assert np.array_equal(one[0]["noise"], other[0]["noise"])


def test_a_keras_that_is_loaded_later_takes_the_object_too(keras, monkeypatch):
    monkeypatch.setattr("deepfreeze.data.keras_calls._KERASES", ())
    data = Resumable(numbers(), 4)
    assert not isinstance(data, keras.utils.Sequence)
    monkeypatch.undo()
    assert isinstance(data, keras.utils.Sequence) and isinstance(data, Resumable)
