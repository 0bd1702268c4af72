"""Memory of TensorFlow's own that restored values are read into."""

import numpy as np
import pytest

from deepfreeze.format.tensors import REPLICATED, TensorSpec

pytestmark = pytest.mark.tensorflow


@pytest.mark.full
@pytest.mark.slow
def test_a_tensor_of_more_elements_than_32_bits_count_is_assigned():
    import tensorflow as tf

    from deepfreeze.frameworks.tensorflow.tensor_memory import room

    count = 2**31 + 5
    made = room(TensorSpec("large", "uint8", (count,), REPLICATED))
    made.data[:] = 0
    made.data[[0, 2**31, count - 1]] = 1, 2, 3
    variable = tf.Variable(tf.zeros([count], tf.uint8))
    made.assign(variable)
    assert [int(variable[at]) for at in (0, 1, 2**31, count - 1)] == [1, 0, 2, 3]
    assert int(np.count_nonzero(made.data)) == 3
