"""An input knows its place, whoever asks for it: a copy, or another thread."""

import copy
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from deepfreeze.data import Resumable
from deepfreeze.data.order import order


def test_a_copy_goes_on_from_the_same_place_and_changes_nothing():
    data = Resumable(np.arange(10), 2, seed=3)
    taken = next(iter(data)).tolist()
    data.advance()
    data.set_state(data.state(), counted=True)
    one, other = copy.deepcopy([data, data])
    assert one is other and type(one) is Resumable and one is not data
    assert one.state() == data.state() and len(data) == 5 and len(one) == 4, "Keras counts for the original alone"
    rest = np.concatenate([*one])
    one.advance(4)
    assert [*taken, *rest] == order(3, 0, 10).tolist()
    assert (one.next_epoch, data.next_epoch, data.batches_done) == (1, 0, 1)
    assert np.array_equal(np.concatenate([*data]), rest)


def test_an_epoch_is_begun_when_one_item_of_it_is_trained():
    data = Resumable(np.arange(10), 2)
    for items in range(3):
        data.begin(1, items)
        assert (data.begun, data.batches_done) == (items > 0, items // 2)


def test_a_copy_of_an_input_that_was_handed_out_has_handed_out_nothing():
    data = Resumable(np.arange(4), 2, seed=3)
    assert len([*data]) == 2 and data.epoch == 1
    copied = copy.deepcopy(data)
    copied.begin_loop()
    assert (data.epoch, copied.epoch) == (1, 0), "what is told of counts"


USES = {
    "epoch": lambda data: data.epoch,
    "next_epoch": lambda data: data.next_epoch,
    "batches_done": lambda data: data.batches_done,
    "begun": lambda data: data.begun,
    "begin": lambda data: data.begin(2),
    "advance": lambda data: data.advance(),
    "begin_loop": lambda data: data.begin_loop(),
    "state": lambda data: data.state(),
    "state_at": lambda data: data.state_at(0, 1),
    "len": len,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("use", USES)
def test_who_uses_an_input_waits_for_another_thread_that_begins_a_pass(monkeypatch, use):
    inside, going_on = threading.Event(), threading.Event()

    def size():
        if threading.current_thread() is beginning:  # within ``_begun``
            inside.set()
            assert going_on.wait(60)
        return 1

    data = Resumable(np.arange(10), 2)
    data.state()
    horovod = SimpleNamespace(is_initialized=lambda: True, rank=lambda: 0, size=size)
    beginning = threading.Thread(target=lambda: next(iter(data)))
    using = threading.Thread(target=USES[use], args=(data,))
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", horovod)
    beginning.start()
    assert inside.wait(60)
    using.start()
    using.join(0.05)
    assert using.is_alive()
    going_on.set()
    for thread in (beginning, using):
        thread.join(60)
        assert not thread.is_alive()
