"""``deepfreeze.data.IteratorState``: a loop goes on with the element that comes next, whatever its pipeline has read ahead."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.data import IteratorState
from deepfreeze.errors import OptionError
from tests.support import trainings

pytestmark = pytest.mark.tensorflow


def pipeline(rows=200):
    """One whose order no seed repeats."""
    return tf.data.Dataset.range(rows).shuffle(50).batch(4).prefetch(10)


def numbers(iterator, count=None):
    found = []
    for batch in iterator:
        found.append(batch.numpy().tolist())
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("given", [lambda dataset: dataset, iter], ids=["dataset", "iterator"])
def test_a_shuffled_pipeline_goes_on_and_repeats_nothing(given):
    first = IteratorState(given(pipeline()))
    before = numbers(first, 20)
    state = first.state_dict()
    rest = numbers(first)
    second = IteratorState(given(pipeline()))
    second.load_state_dict(state)
    assert numbers(second) == rest
    assert sorted(number for batch in before + rest for number in batch) == list(range(200))


@pytest.mark.parametrize("read", [0, 1, 5])
def test_a_pipeline_whose_parts_do_not_know_their_place_goes_on_too(read):
    """TensorFlow saves the elements in its buffers then, which it notices when the first element was read."""

    def grouped():
        return tf.data.Dataset.range(40).group_by_window(lambda n: n % 3, lambda _, some: some.batch(4), window_size=4)

    first, second, third = (IteratorState(grouped()) for _ in range(3))
    before = numbers(first, read) if read else []
    second.load_state_dict(first.state_dict())
    between = numbers(second, 2)
    third.load_state_dict(second.state_dict())
    assert before + between + numbers(third) == numbers(grouped())


def test_a_pipeline_of_which_nothing_was_read_begins_with_the_same_order():
    first, second = IteratorState(pipeline()), IteratorState(pipeline())
    second.load_state_dict(first.state_dict())
    assert numbers(second) == numbers(first)


@pytest.mark.full
def test_a_loop_with_an_iterator_goes_on(keras, tmp_path):
    def loop(stop):
        data = tf.data.Dataset.from_tensor_slices(np.arange(24 * trainings.FEATURES, dtype=np.float32).reshape(24, -1))
        batches = IteratorState(data.shuffle(24).batch(2))
        model = trainings.dense(keras)
        seen = []
        with deepfreeze.capture(
            model.optimizer, model, tmp_path / "run", every=1, extra={"input": batches}
        ) as checkpoint:
            for x in batches:
                model.train_on_batch(x, x[:, :1])
                seen += x[:, 0].numpy().tolist()
                checkpoint.step()
                if len(seen) == stop:
                    break
        return seen

    assert sorted(loop(10) + loop(None)) == [float(number * trainings.FEATURES) for number in range(24)]


def test_what_tensorflow_can_not_save_is_named():
    spec = tf.TensorSpec([], tf.int64)
    generated = tf.data.Dataset.from_generator(lambda: iter(range(9)), output_signature=spec)
    batches = IteratorState(generated)
    next(batches)
    with pytest.raises(OptionError, match=r"GeneratorDataset does not support checkpointing.*Skipping"):
        batches.state_dict()


def test_the_state_of_another_pipeline_is_refused():
    state = IteratorState(pipeline()).state_dict()
    with pytest.raises(OptionError, match="the pipeline whose state the checkpoint has"):
        IteratorState(tf.data.Dataset.range(9)).load_state_dict(state)


@pytest.mark.parametrize("given", [[1, 2], iter([1, 2]), SimpleNamespace(element_spec=tf.TensorSpec(()))])
def test_what_is_no_dataset_is_refused(given):
    with pytest.raises(OptionError, match=r"a tf\.data\.Dataset, or an iterator over one"):
        IteratorState(given)
