"""An input as a Keras sees it: what it is told of the batches, and which of its questions train. Without a Keras."""

import numpy as np
import pytest

from deepfreeze.data import Resumable, keras_calls
from deepfreeze.data.keras_calls import Call
from deepfreeze.data.order import order
from deepfreeze.errors import OptionError


@pytest.fixture
def around(monkeypatch):
    """The calls of a model that this test is in, the innermost first; the test's own generators are a Keras's."""
    calls = []
    monkeypatch.setattr(keras_calls, "call_around", lambda frame: calls[0] if calls else None)
    monkeypatch.setattr(keras_calls, "calls_over", lambda data, around=None: [call.name for call in calls])
    monkeypatch.setattr(keras_calls, "is_kerases", lambda frame: True)
    return calls


def call(name, class_weight=False):
    return Call(name, None, 1, class_weight)


def pass_over(data):
    """As a Keras goes over the data: the length first."""
    for index in range(len(data)):
        yield data[index]


def items(length):
    return np.arange(length), np.arange(length) % 3


def test_a_generator_is_told_the_length_of_its_own_pass():
    data = Resumable(items(10), 2)
    data.begin(0, 8)

    def generator():
        assert len(data[0]) == 2
        yield len(data)
        yield data.num_batches

    assert [*generator()] == [1, 1] and len(data) == data.num_batches == 5, "what comes next is a whole epoch"


def test_keras_3_is_told_how_many_batches_each_epoch_has():
    data = Resumable(items(10), 2)

    class Iterator:
        _num_batches = None

        def _enumerate_iterator(self):
            data.on_epoch_begin()

    iterator = Iterator()
    for done, batches in [(0, 5), (4, 3)]:
        data.begin(0, done)
        iterator._enumerate_iterator()
        assert iterator._num_batches == batches
    assert data.on_epoch_end() is None


def test_weights_that_keras_was_not_shown_are_refused_when_the_epoch_begins():
    """In the thread that calls ``fit``, not where a thread of TensorFlow's asks for the first batch."""
    data = Resumable(items(12), global_batch=4, rank=0, ranks=2)
    assert len(data[0]) == 2
    data.begin(0, 3)
    with pytest.raises(OptionError, match="expected batches without sample weights"):
        data.on_epoch_begin()
    assert len(data[0]) == 3
    data.on_epoch_begin()


def test_class_weights_are_refused_where_batches_have_weights(around):
    around.append(call("fit", class_weight=True))
    assert len(Resumable(items(12), 2)[0]) == 2
    with pytest.raises(OptionError, match=r"fit\(class_weight=\): expected None"):
        Resumable(items(11), global_batch=4, rank=0, ranks=2)[0]


def test_a_look_of_evaluate_begins_no_pass_of_a_fit(around):
    data, said = Resumable(items(8), 2, seed=3), []
    data.notify = lambda level, message: said.append(message)
    around.append(call("fit"))
    assert len(data[0]) == 2
    training = pass_over(data)
    first = next(training)
    around.insert(0, call("evaluate"))
    assert data[0][0].tolist() == [0, 1]
    del around[0]
    beside = [batch[0].tolist() for batch in pass_over(data)]  # a Keras's too: a layer that adapts to the data
    assert beside == [[0, 1], [2, 3], [4, 5], [6, 7]] and len(said) == 1
    assert np.concatenate([first[0], *(batch[0] for batch in training)]).tolist() == order(3, 0, 8).tolist()


def test_what_was_trained_before_the_first_pass_is_not_shown():
    data = Resumable(items(10), 2)
    data.advance()
    assert len(data) == 4


def test_an_input_is_of_its_own_class_and_of_kerases(sequence):
    data = Resumable(items(4), 2)
    assert isinstance(data, Resumable) and isinstance(data, type(sequence)) and data.__class__.__name__ == "Resumable"
