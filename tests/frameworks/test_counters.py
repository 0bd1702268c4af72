"""Whole numbers that variables hold are written and read outside of the graph that reads them."""

import pytest

pytestmark = pytest.mark.tensorflow


def test_the_graph_sees_the_number_that_was_set_last():
    import tensorflow as tf

    from deepfreeze.frameworks.tensorflow import counters

    number = counters.OwnNumber(-1, "number")
    seen = tf.function(lambda: number.variable.read_value())
    assert int(seen()) == -1
    for value in [10, 20, 30, 30, 7, -1, 2**62, 10, -1, -1, 0]:
        number.set(value)
        assert int(seen()) == counters.read(number.variable) == value
