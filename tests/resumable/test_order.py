"""An epoch's order, and an item's random numbers, are functions of the seed, the epoch and the item alone."""

import pickle
import tracemalloc

import numpy as np
from hypothesis import strategies as st

from deepfreeze.data import order as orders
from deepfreeze.data.order import item_rng, item_seed, order
from tests.support.properties import holds

seeds, epochs = st.integers(0, 2**63 - 1), st.integers(0, 2**40)


@holds(seed=seeds, epoch=epochs, length=st.integers(1, 3000))
def test_an_order_has_every_item_once_and_follows_from_seed_and_epoch(seed, epoch, length):
    first = order(seed, epoch, length)
    np.random.default_rng(3).shuffle(np.arange(9))
    np.random.random(5)
    assert first.dtype == np.int32 and sorted(first.tolist()) == list(range(length))
    assert np.array_equal(first, order(seed, epoch, length))
    if length > 20:
        assert not np.array_equal(first, order(seed, epoch + 1, length))
        assert not np.array_equal(first, order(seed ^ 1, epoch, length))


def test_an_order_is_the_same_on_every_version_of_numpy():
    """As it was when this test was written: raw numbers of Philox, sorted."""
    assert order(7, 3, 12).tolist() == [2, 5, 9, 7, 3, 0, 6, 8, 4, 1, 11, 10]
    assert item_rng(7, 3, 5).bit_generator.random_raw() == 17497499178513844534
    assert item_seed(7, 3, 5) == (1568594179, 1223461879)


def test_every_place_of_an_order_has_every_item_equally_often():
    counts = np.zeros((7, 7))
    for epoch in range(2100):
        counts[np.arange(7), order(1, epoch, 7)] += 1
    # Each count is 300 on average, with a deviation of 16.
    assert counts.min() > 220 and counts.max() < 380


def test_the_source_s_own_order_is_kept_without_shuffling():
    assert order(7, 3, 5, shuffle=False).tolist() == [0, 1, 2, 3, 4]


def test_an_order_has_room_for_the_number_of_each_item():
    assert [orders._dtype(length) for length in (1, 1 << 31, (1 << 31) + 1)] == [np.int32, np.int32, np.int64]


def test_an_order_takes_at_most_16_bytes_of_memory_an_item():
    length = 1 << 20
    order(1, 1, 1000)
    tracemalloc.start()
    held = order(1, 1, length)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held.nbytes == 4 * length and peak <= 16 * length


@holds(seed=seeds, epoch=epochs, item=st.integers(0, 2**40))
def test_an_item_s_random_numbers_follow_from_seed_epoch_and_item(seed, epoch, item):
    drawn = item_rng(seed, epoch, item).integers(0, 2**62, 4).tolist()
    rng = item_rng(seed, epoch, item)
    pair = rng.seed_pair
    assert rng.integers(0, 2**62, 4).tolist() == drawn and rng.seed_pair == pair == item_seed(seed, epoch, item)
    assert all(0 <= number < 2**31 for number in pair)
    for other in [(seed ^ 1, epoch, item), (seed, epoch + 1, item), (seed, epoch, item + 1)]:
        assert item_rng(*other).integers(0, 2**62, 4).tolist() != drawn and item_seed(*other) != pair


def test_a_generator_that_is_handed_to_another_process_begins_as_here():
    rng = item_rng(7, 3, 5)
    there = pickle.loads(pickle.dumps(rng))
    assert there.seed_pair == rng.seed_pair and there.random(4).tolist() == rng.random(4).tolist()
