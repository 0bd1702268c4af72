"""Which call of a model asks an input for batches, as the frames of this thread tell."""

import sys

import pytest

from deepfreeze.data import keras_calls
from deepfreeze.data.keras_calls import Call, call_around


class Model:
    """A model, which ``call_around`` knows by its method ``make_train_function``."""

    def make_train_function(self):
        return call_around(sys._getframe())

    def fit(self, x, steps_per_epoch=None, class_weight=None, workers=None, use_multiprocessing=False):
        return call_around(sys._getframe())

    def evaluate(self, x, steps=None):
        return self.make_train_function()  # whatever the model calls itself


def fit(x, steps_per_epoch):
    return call_around(sys._getframe())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (None, 1, False)),
        ({"steps_per_epoch": 3}, (3, 1, False)),
        ({"class_weight": {0: 1.0}}, (None, 1, True)),
        ({"workers": 4}, (None, 4, False)),
        ({"use_multiprocessing": True}, (None, 2, False)),
        ({"use_multiprocessing": True, "workers": 5}, (None, 5, False)),
    ],
)
def test_a_fit_is_told_with_its_arguments(given, expected):
    assert Model().fit(None, **given) == Call("fit", *expected)


def test_the_innermost_call_of_a_model_counts():
    assert Model().evaluate(None, steps=7) == Call("evaluate", 7, 1, False)
    assert Model().make_train_function() is None
    assert fit(None, steps_per_epoch=3) is None, "a function of this name, of no model"


class Iterator:
    """Keras 3's iterator over the epochs."""

    def __init__(self, **values):
        vars(self).update(values)

    def _enumerate_iterator(self):
        keras_calls.tell_length(sys._getframe(), 5)

    def _other(self):
        keras_calls.tell_length(sys._getframe(), 5)


def test_the_length_is_told_to_the_iterator_over_the_epochs_alone():
    told, other, older = Iterator(_num_batches=9), Iterator(_num_batches=9), Iterator()
    told._enumerate_iterator()
    other._other()
    older._enumerate_iterator()  # of a Keras that keeps no length
    assert (vars(told), vars(other), vars(older)) == ({"_num_batches": 5}, {"_num_batches": 9}, {})
