"""A batch has the items that its number says, each augmented by its own random numbers, and weights where the shares are unequal."""

import numpy as np
import pytest

from deepfreeze.data.batches import Batches
from deepfreeze.data.dealing import Dealing
from deepfreeze.data.order import item_rng
from deepfreeze.errors import OptionError


class Batched:
    """A source of five batches, as a ``PyDataset`` is: three rows of the batch's number."""

    length, batched, plain = 5, True, False

    def batch(self, numbers):
        (number,) = numbers.tolist()
        return np.full(3, number)


def last_batch(augment):
    """The last batch of rank 0. Rank 1 has none, so each row of this one has the weight 2."""
    batches = Batches(Batched(), None, Dealing(5, 2, 2), 0, 7, 2, 4, augment, True)
    assert len(batches) == 1
    return batches.make(0)


def test_a_batch_of_a_source_of_batches_is_augmented_by_its_number():
    batches = Batches(
        Batched(), None, Dealing(5, 1, 1), 0, 7, 2, 0, lambda batch, rng: (batch, rng.integers(1 << 30)), False
    )
    for number in range(5):
        batch, drawn = batches.make(number)
        assert batch.tolist() == [number] * 3 and drawn == item_rng(7, 2, number).integers(1 << 30)


def test_weights_are_the_third_part_of_a_tuple_or_list_also_without_a_target():
    x, y, own = np.arange(3.0), np.arange(3.0) + 10, np.arange(3.0) + 20
    for given, weights in [([x, y], [2.0] * 3), ((x, None), [2.0] * 3), ([x, y, own], [40.0, 42.0, 44.0])]:
        made = last_batch(lambda batch, rng, given=given: given)
        assert made[0] is given[0] and made[1] is given[1] and made[2].tolist() == weights
    with pytest.raises(OptionError, match="found a list of 4"):
        last_batch(lambda batch, rng: [x, y, own, x])


def test_the_reason_for_weights_has_what_is_left_of_the_epoch():
    batches = Batches(Batched(), None, Dealing(12, 2, 6), 0, 7, 2, 5, None, True)
    assert "epoch 2 has 7 items, dealt 6 at a time, and 2 ranks do not divide the last" in batches.uneven
