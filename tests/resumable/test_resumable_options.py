"""The options of a ``Resumable``: their effects, defaults and bounds."""

import os
import sys
import threading

import numpy as np
import pytest

from deepfreeze.data import Resumable
from deepfreeze.errors import OptionError

LARGEST = 2**31 - 1


def numbers(length):
    """A source whose items are their own numbers."""
    return np.arange(length), np.arange(length) % 3


def test_ranks_agree_on_the_items_their_order_and_their_batches():
    found = Resumable(numbers(10), 4).same_on_all_ranks()
    crc = found.pop("fingerprint")
    assert crc == Resumable(numbers(10), 2).state()["fingerprint"]
    sizes = {"batch_size": 4, "global_batch": 0, "last": "weighted"}
    assert found == {"seed": 0, "shuffle": True, "length": 10, **sizes}
    found = Resumable(numbers(10), global_batch=6, seed=2, shuffle=False, last="drop").same_on_all_ranks()
    sizes = {"batch_size": 0, "global_batch": 6, "last": "drop"}
    assert found == {"seed": 2, "shuffle": False, "length": 10, "fingerprint": crc, **sizes}


@pytest.mark.parametrize("name", ["batch_size", "global_batch"])
def test_the_largest_batch(name):
    assert len(Resumable(numbers(10), **{name: LARGEST}, rank=0, ranks=1)) == 1
    with pytest.raises(OptionError, match=f"{name}=: expected a whole number from 1 to {LARGEST}"):
        Resumable(numbers(10), **{name: LARGEST + 1})


def test_rank_and_ranks_are_given_together():
    with pytest.raises(OptionError, match="rank=: expected a whole number from 0 to 2"):
        Resumable(numbers(10), 2, ranks=3)
    with pytest.raises(OptionError, match=f"ranks=: expected a whole number from 1 to {LARGEST}"):
        Resumable(numbers(10), 2, rank=0)
    with pytest.raises(OptionError, match="shuffle=: expected one of True, False"):
        Resumable(numbers(10), 2, shuffle="yes")


class Gate:
    """Holds the threads that make items until ``open`` is set. ``made``: the first of them has come."""

    def __init__(self):
        self.made, self.open = threading.Event(), threading.Event()

    def wait(self, item, rng=None):
        self.made.set()
        assert self.open.wait(60)
        return item


@pytest.mark.parametrize(
    ("cores", "options", "count"),
    [
        (9, {"source": [*range(40)], "load": Gate.wait}, 4),
        (3, {"source": [*range(40)], "load": Gate.wait}, 3),
        (9, {"source": np.arange(40), "augment": Gate.wait}, 4),
        (9, {"source": np.arange(40), "augment": Gate.wait, "threads": 6}, 6),
    ],
)
def test_so_many_threads_read_ahead(monkeypatch, cores, options, count):
    monkeypatch.setattr(os, "sched_getaffinity", {0: range(cores)}.get)  # 0: this process
    gate = Gate()
    waits = {name: gate.wait for name, value in options.items() if value is Gate.wait}
    data = Resumable(batch_size=1, **{**options, **waits})
    before = {*threading.enumerate()}  # an earlier test's may be about to end
    taking = threading.Thread(target=lambda: next(iter(data)))
    taking.start()
    assert gate.made.wait(60)
    assert len({*threading.enumerate()} - before - {taking}) == count
    gate.open.set()
    taking.join(60)


def test_plain_arrays_are_read_by_the_caller(monkeypatch):
    monkeypatch.setattr(threading, "Thread", None)  # nobody starts one
    assert len([*Resumable(numbers(20), 1)]) == 20
    assert len(Resumable(numbers(4), 2, threads=1024)) == 2
    with pytest.raises(OptionError, match="threads=: expected a whole number from 0 to 1024"):
        Resumable(numbers(4), 2, threads=1025)


def test_batches_of_a_keras_are_dealt_one_at_a_time(sequence):
    data = Resumable(sequence, shuffle=False)
    assert len(data) == 3 and [batch[0].tolist() for batch in data] == [[0, 0], [1, 1], [2, 2]]
    sizes = data.same_on_all_ranks()
    assert (sizes["batch_size"], sizes["global_batch"]) == (1, 0)
    for given, found in [({"batch_size": 2}, "batch_size="), ({"global_batch": 2}, "global_batch=")]:
        with pytest.raises(OptionError, match=rf"expected neither: .* found {found}\. Leave it out"):
            Resumable(sequence, **given)
    with pytest.raises(OptionError, match=r"expected neither: .* found both\. Leave it out"):
        Resumable(sequence, 2, global_batch=2)
    with pytest.raises(OptionError, match=r"found neither\. Pass batch_size= for each rank"):
        Resumable(numbers(4))


def test_shapes_leave_open_how_many_items_and_what_differs_between_batches():
    found = Resumable((np.zeros((5, 3, 2), "f4"), np.arange(5)), 2).shapes()
    assert [(one.shape, one.dtype) for one in found] == [((None, 3, 2), np.float32), ((None,), np.int64)]
    items = [(np.zeros((3, 1 + number)), number) for number in range(2)]
    assert [one.shape for one in Resumable(items, 1).shapes()] == [(None, 3, None), (None,)]
    for other in (np.zeros((3, 1, 1)), (1, 2)):
        with pytest.raises(
            OptionError, match="the source's batches: expected the same structure and dimensions in each"
        ):
            Resumable([np.zeros((3, 1)), other], 1, shuffle=False).shapes()


def test_a_rest_that_is_uneven_has_weights_although_the_epoch_needs_none():
    data = Resumable(numbers(12), global_batch=4, rank=0, ranks=2, seed=3)
    assert len(next(iter(data))) == 2
    data.set_state({**data.state(), "items": 3})
    assert [len(batch) for batch in data] == [3, 3, 3]


def test_the_next_pass_has_what_is_left_unless_keras_counts_the_whole_epoch():
    data = Resumable(numbers(10), 2)
    data.set_state({**data.state(), "items": 8})
    assert len(data) == 1
    data.begin(3, 4)
    assert (len(data), data.next_epoch, data.batches_done) == (3, 3, 2)


def test_what_is_dropped_is_said_when_the_first_such_epoch_begins():
    for length, items, after in [(9, 0, [1, 1]), (11, 4, [1, 1]), (11, 3, [0, 1])]:
        said, data = [], Resumable(numbers(length), 4, last="drop")
        data.notify = lambda level, message, said=said: said.append(message)
        data.set_state({**data.state(), "items": items})
        assert said == []
        for count in after:
            assert len([*data]) > 0 and len(said) == count


def test_a_dataset_wants_tensorflow(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    with pytest.raises(OptionError, match=r"Resumable.dataset\(\): expected TensorFlow in this process"):
        Resumable(numbers(4), 2).dataset()
