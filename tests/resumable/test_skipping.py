"""``deepfreeze.data.Skipping``: a ``tf.data`` pipeline goes on where it was, or says why it can't."""

import copy

import google_crc32c
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.data import Skipping
from deepfreeze.errors import CorruptError, OptionError
from tests.support import trainings

pytestmark = pytest.mark.tensorflow

ROWS, BATCH, BATCHES = 26, 4, 7


def rows():
    rng = np.random.default_rng(0)
    return rng.random((ROWS, trainings.FEATURES), np.float32), rng.random((ROWS, 1), np.float32)


def of_epoch(epoch):
    """A repeatable pipeline: its order is a function of the epoch."""
    return tf.data.Dataset.from_tensor_slices(rows()).shuffle(ROWS, seed=epoch).batch(BATCH)


def shuffled(**options):
    return tf.data.Dataset.from_tensor_slices(rows()).shuffle(ROWS, **options).batch(BATCH)


def trained(data, batches):
    """A loop over so many batches. Returns their bytes."""
    seen = []
    while len(seen) < batches:
        for x, y in data:
            seen.append(x.tobytes() + y.tobytes())
            data.advance()
            if len(seen) == batches:
                return seen
    return seen


@pytest.mark.parametrize("stop", [1, 3, 7, 9, 14])
def test_a_repeatable_pipeline_goes_on_with_the_next_batch(stop):
    whole = trained(Skipping(of_epoch), 3 * BATCHES)
    first = Skipping(of_epoch)
    before = trained(first, stop)
    state = first.state()
    second = Skipping(of_epoch)
    second.set_state(state)
    assert second.epoch == stop // BATCHES and second.batches_done == stop % BATCHES
    assert before + trained(second, 3 * BATCHES - stop) == whole


def test_a_pipeline_can_be_interrupted_again_in_the_same_epoch():
    whole = trained(Skipping(of_epoch), 2 * BATCHES)
    found, state = [], None
    for batches in (2, 2, 3, 1, 6):
        data = Skipping(of_epoch)
        if state is not None:
            data.set_state(state)
        found += trained(data, batches)
        state = data.state()
    assert found == whole


def test_a_dataset_of_one_order_goes_on_too():
    def source():
        return shuffled(seed=3, reshuffle_each_iteration=False)

    first = Skipping(source())
    trained(first, 9)
    second = Skipping(source())
    second.set_state(first.state())
    assert trained(second, 1) == trained(Skipping(source()), 3)[2:]


@pytest.mark.parametrize("stop", [9, 14], ids=["inside", "between"])
@pytest.mark.parametrize("options", [{}, {"seed": 3}], ids=["unseeded", "reshuffled"])
def test_an_order_that_is_not_repeatable_is_refused(options, stop):
    first = Skipping(shuffled(**options))
    trained(first, stop)
    with pytest.raises(
        OptionError, match=r"the one that was trained before; found another batch.*reshuffle_each_iteration=False"
    ):
        Skipping(shuffled(**options)).set_state(first.state())


def test_states_of_other_pipelines_are_refused():
    data = Skipping(of_epoch)
    trained(data, 3)
    state = data.state()
    with pytest.raises(OptionError, match="expected 7 batches in an epoch, as in the checkpoint; found 9"):
        Skipping(of_epoch, length=9).set_state(state)
    with pytest.raises(OptionError, match="expected 4 ranks"):
        Skipping(of_epoch).set_state({**state, "ranks": 4})
    with pytest.raises(CorruptError, match="none with seen"):
        Skipping(of_epoch).set_state({name: value for name, value in state.items() if name != "seen"})
    with pytest.raises(CorruptError, match="found seen a list of 1"):
        Skipping(of_epoch).set_state({**state, "seen": [[0, 2**63, 5]]})


def test_wrong_sources_are_refused():
    with pytest.raises(OptionError, match="a dataset that never ends"):
        Skipping(shuffled().repeat())
    with pytest.raises(OptionError, match=r"unknown length.*Pass length="):
        Skipping(shuffled().filter(lambda *_: True))
    with pytest.raises(OptionError, match="or a function of the epoch that returns one"):
        Skipping([1, 2])
    with pytest.raises(OptionError, match="dense tensors"):
        Skipping(tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]])))


def test_a_length_that_the_pipeline_does_not_have_is_told():
    data = Skipping(of_epoch, length=9)
    with pytest.raises(
        OptionError, match="expected 9 batches more in this epoch; found a dataset that has ended after 7"
    ):
        list(data)


def test_a_pass_that_has_ended_keeps_no_iterator():
    data = Skipping(of_epoch)
    assert len(list(data)) == BATCHES and data._training._iterator is None


def test_a_state_of_a_batch_long_ago_is_refused(monkeypatch):
    monkeypatch.setattr("deepfreeze.data.skipping._KEPT", 2)
    data = Skipping(of_epoch)
    for _ in data:
        pass  # nobody tells of the steps
    data.advance(2)
    with pytest.raises(OptionError, match="found batch 1 of epoch 0"):
        data.state()


def test_the_longest_and_the_shortest_epoch():
    assert len(Skipping(shuffled().take(1))) == 1 and len(Skipping(of_epoch, length=2**31 - 1)) == 2**31 - 1
    for length in (0, 2**31):
        with pytest.raises(OptionError, match="length=: expected a whole number from 1 to 2147483647"):
            Skipping(of_epoch, length=length)
    assert Skipping(of_epoch).same_on_all_ranks() == {"length": BATCHES}


def test_a_copy_goes_on_by_itself():
    data = Skipping(of_epoch)
    trained(data, 3)
    copied = copy.deepcopy(data)
    assert trained(copied, 2) == trained(Skipping(of_epoch), 5)[3:]
    assert (copied.batches_done, data.batches_done) == (5, 3)
    assert copied.state()["seen"][0] != data.state()["seen"][0]


@pytest.mark.parametrize("parts", [(3, 1, 5, 8), (1, 6, 7, 2)])
def test_a_loop_that_was_left_goes_on_with_the_next_batch(parts):
    """In the same process, over the same object."""
    data = Skipping(of_epoch)
    assert [batch for part in parts for batch in trained(data, part)] == trained(Skipping(of_epoch), sum(parts))


def test_a_loop_that_was_left_does_not_go_on_in_another_order():
    data = Skipping(shuffled())
    trained(data, 3)
    with pytest.raises(OptionError, match=r"batch 2 of epoch 0 to be the one that was trained before; found another"):
        next(iter(data))
    data.begin(1)
    assert len(trained(data, BATCHES)) == BATCHES


def test_what_is_read_again_is_said_unless_an_epoch_begins():
    for stop, expected in [(3, ["reading 3 batches of epoch 0 again, which are trained already"]), (BATCHES, [])]:
        data, other, said = Skipping(of_epoch), Skipping(of_epoch), []
        trained(data, stop)
        other.notify = lambda level, message, said=said: said.append(message)
        other.set_state(data.state())
        assert said == expected


def test_a_batch_is_known_by_the_checksum_of_its_bytes_as_in_older_versions():
    data = Skipping(tf.data.Dataset.from_tensors((np.arange(6, dtype="i4"), np.array([b"a", b"bc"]))))
    assert len(trained(data, 1)) == 1
    crc = google_crc32c.value(np.arange(6, dtype="i4").tobytes() + b"a\0bc")
    assert data.state()["seen"] == [[0, 0, crc]]


def test_an_epoch_whose_batches_are_handed_out_has_ended_where_nobody_tells():
    data = Skipping(of_epoch)
    taken = iter(data)
    next(taken)
    assert data.epoch == 0
    assert len([*taken]) == BATCHES - 1 and data.epoch == 1
    data.begin(4)
    assert (data.next_epoch, data.begun, data.batches_done) == (4, False, 0)


@pytest.mark.full
@pytest.mark.parametrize("kill", [10, 15])
def test_a_killed_fit_over_a_pipeline_equals_a_whole_one(keras, tmp_path, kill):
    class Killed(Exception):
        pass

    def fit(run, kill=None):
        class Dies(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                if trainings.count(self.model.optimizer) == kill:
                    raise Killed

        data = Skipping(of_epoch)
        model = trainings.dense(keras, keras.optimizers.Adam(0.01), metrics=["mae"])
        checkpoint = deepfreeze.Checkpoint(run, every=1, keep=100, data=data)
        history = {}
        try:
            history = model.fit(data, epochs=3, verbose=0, callbacks=[checkpoint, Dies()]).history
        except Killed:
            checkpoint.close()
        kept = {name: list(map(float, values)) for name, values in history.items() if "deepfreeze" not in name}
        return kept, [np.asarray(weight).tobytes() for weight in model.weights]

    whole = fit(tmp_path / "whole")
    fit(tmp_path / "run", kill)
    assert fit(tmp_path / "run") == whole
