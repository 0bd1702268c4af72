"""The resumable input without a Keras: its items, its state, and what is refused."""

import json
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import strategies as st

import deepfreeze
from deepfreeze.data import Resumable, keras_calls
from deepfreeze.data.order import item_rng, order
from deepfreeze.errors import CorruptError, OptionError
from tests.support import jobs
from tests.support.properties import holds


def numbers(length):
    """A source whose items are their own numbers."""
    return np.arange(length), np.arange(length) % 3


def items(batches):
    """The items of batches that have weights where ranks have copies: those of weight 0 are left out."""
    return [item for batch in batches for item in batch[0][[*map(bool, batch[2])] if len(batch) == 3 else ...].tolist()]


def job(state, length, ranks, steps, **sizes):
    """One job of several ranks, which trains ``steps`` batches, or all that is left of its epoch. Returns the items that were trained,
    and the state of each rank."""
    seen, states = [], []
    for rank in range(ranks):
        data = Resumable(numbers(length), rank=rank, ranks=ranks, seed=11, **sizes)
        if state is not None:
            data.set_state(state)
        taken = list(zip(range(steps), data, strict=False))
        data.advance(len(taken))
        seen.append([items([batch]) for _, batch in taken])
        states.append(data.state())
    assert all(one == states[0] for one in states)
    return [item for step in zip(*seen, strict=True) for share in step for item in share], states[0]


@holds(length=st.integers(1, 120), chance=st.integers(0, 2**31), fixed=st.booleans(), examples=30)
def test_every_item_exactly_once_through_restarts_with_1_to_5_ranks(length, chance, fixed):
    draw = np.random.default_rng(chance)
    state, epochs = None, {0: [], 1: []}
    while state is None or state["epoch"] < 2:
        ranks = int(draw.integers(1, 6))
        sizes = {"global_batch": 60} if fixed else {"batch_size": int(draw.integers(1, 9))}
        epoch = 0 if state is None else state["epoch"]
        trained, state = job(state, length, ranks, int(draw.integers(1, 12)), **sizes)
        state = json.loads(json.dumps(state))
        epochs[epoch] += trained
    for epoch, trained in epochs.items():
        assert trained == order(11, epoch, length).tolist()


def test_each_loop_is_the_next_epoch_and_its_rest_after_an_interruption():
    data = Resumable(numbers(10), 4, seed=3)
    assert (data.epoch, data.batches_done, len(data)) == (0, 0, 3)
    assert [items(data), items(data)] == [order(3, epoch, 10).tolist() for epoch in (0, 1)] and data.epoch == 2
    data.begin(2)
    batch = next(iter(data))
    data.advance()
    assert (data.epoch, data.batches_done, len(data)) == (2, 1, 2)
    assert items([batch]) + items(data) == order(3, 2, 10).tolist()
    data.advance(2)
    assert data.epoch == 3 and data.state()["epoch"] == 3 and data.state()["items"] == 0


def test_a_state_counts_what_is_trained_and_not_what_is_read_ahead():
    data = Resumable(numbers(100), 10, threads=2)
    batches = iter(data)
    for _ in range(5):
        next(batches)
    data.advance(3)
    assert data.state() == data.state_at(0, 3) and data.state()["items"] == 30
    data.set_state(data.state())
    assert data.state_at(0, 2)["items"] == 50 and data.state_at(1, 2)["items"] == 20
    assert data.state_at(0, 7) == data.state_at(1, 0) == data.state() | {"epoch": 1, "items": 0}


def test_a_thread_of_an_interrupted_fit_takes_nothing_from_the_next_one():
    data = Resumable(numbers(10), 2, seed=3)

    def fit():  # as a Keras goes over the data
        for index in range(len(data)):
            yield data[index]

    one, other = fit(), fit()
    assert data[1][0].tolist() == order(3, 0, 10)[2:4].tolist()  # a look
    taken = [next(one), next(one)]
    data.advance()
    assert items([*taken]) == order(3, 0, 10)[:4].tolist()
    taken = [next(other)]
    with pytest.raises(IndexError):
        next(one)
    assert items([*taken, *other]) == order(3, 0, 10)[2:].tolist()
    assert items(fit()) == order(3, 1, 10).tolist()


@pytest.fixture
def calls(monkeypatch):
    """The calls of a Keras's model that go over the data, the innermost first; a test's own generators are a Keras's."""
    names = []
    monkeypatch.setattr(keras_calls, "calls_over", lambda data, around=None: names)
    monkeypatch.setattr(keras_calls, "is_kerases", lambda frame: True)
    return names


def pass_over(data):
    """As a Keras goes over the data: the length first."""
    for index in range(len(data)):
        yield data[index]


class Beside:
    """What a callback does beside the training, by ``act``. ``left``: generators of ``evaluate`` that were ended by an exception."""

    def __init__(self, data, calls):
        self.data, self.calls, self.left = data, calls, []

    def act(self, name):
        if name == "loop":
            next(iter(self.data))
        elif name == "ask":  # the thread of such an ``evaluate``, within an epoch
            for generator in self.left[: self.data._passes.training]:
                next(generator, None)
        else:
            self.calls.insert(0, "predict" if name == "predict" else "evaluate")
            generator = pass_over(self.data)
            if name == "ended":
                next(generator)
                self.left.append(generator)
            else:
                assert items(generator) == [*range(23)], "all of them"
            del self.calls[0]


@holds(
    acts=st.lists(st.lists(st.sampled_from(["evaluate", "predict", "ended", "loop", "ask"]), max_size=12), max_size=12),
    examples=30,
)
def test_nothing_beside_a_fit_takes_items_from_it(calls, acts):
    """However much of it there is: each epoch has each item once, in its order."""
    data = Resumable(numbers(23), 4, seed=3)
    data.notify = lambda level, message: None
    del calls[:]
    calls.append("fit")
    beside, acts = Beside(data, calls), iter(acts)
    for epoch in range(2):
        data._fit_begins_pass = True  # as Keras's looks before each pass say
        trained = []
        for batch in pass_over(data):
            trained += items([batch])
            for name in next(acts, []):
                beside.act(name)
        assert trained == order(3, epoch, 23).tolist()


def test_evaluate_sees_items_as_they_are_augmented_in_epoch_0(calls):
    calls.append("evaluate")
    data = Resumable(np.arange(6), 2, seed=3, augment=lambda numbers, rng: (numbers, rng.integers(1 << 30)))
    data.begin(5)
    drawn = [(int(number), int(draw)) for batch in pass_over(data) for number, draw in zip(*batch, strict=True)]
    assert drawn == [(number, item_rng(3, 0, number).integers(1 << 30)) for number in range(6)]


def seen(data):
    """The batches at which a Keras looks before it goes over the data: two, if it is told of two."""
    return [data[index] for index in range(min(2, len(data)))]


@holds(
    length=st.integers(1, 60),
    ranks=st.integers(1, 4),
    each=st.integers(1, 9),
    done=st.integers(0, 60),
    last=st.sampled_from(["weighted", "drop"]),
)
def test_whoever_is_told_the_whole_epoch_can_look_at_it(length, ranks, each, done, last):
    """Also where one batch of it is left. The pass has what is left."""
    each = min(each, length // ranks) if last == "drop" else each
    if each == 0:
        return
    source = [(np.zeros(number % 3), 1.0) for number in range(length)] if each == 1 else numbers(length)
    data = Resumable(source, each, rank=0, ranks=ranks, last=last, seed=3)
    whole, shapes = len(data), data.shapes()
    data.set_state({**data.state(), "items": min(done, length - 1)}, counted=True)
    assert len(data) == data.batches_in_epoch == whole and len(seen(data)) == min(2, whole)
    if data.next_epoch == 0:  # what is left is more than ``last="drop"`` leaves out
        assert [leaf.shape for leaf in data.shapes()[:2]] == [leaf.shape for leaf in shapes[:2]]
    left = data.batches_in_epoch - data.batches_done
    assert len([*pass_over(data)]) == left
    assert len([*pass_over(data)]) == whole


def test_an_epoch_that_is_interrupted_later_is_as_long_as_its_rest():
    """The whole epoch is counted for the one that was restored alone."""
    data = Resumable(numbers(10), 2, seed=3)
    data.set_state({**data.state(), "items": 8}, counted=True)
    assert len(data) == 5 and len(seen(data)) == 2 and len(items(pass_over(data))) == 2
    for _ in zip(range(3), pass_over(data), strict=False):
        data.advance()
    assert len(data) == 2 and len(seen(data)) == 2
    with pytest.raises(IndexError):
        data[2]


def test_the_state_of_a_resumed_epoch_can_be_told_when_the_next_has_begun():
    """A late capture is collected then."""
    data = Resumable(numbers(100), 10)
    data.begin(4, 70)
    assert len(items(data)) == 30
    data.advance(3)
    next(iter(data))
    assert data.state_at(4, 2)["items"] == 90 and data.state_at(5, 2)["items"] == 20


@pytest.mark.parametrize(
    "source",
    [
        {"a": np.arange(12).reshape(6, 2), "b": (np.arange(6.0), [np.arange(6) * 2])},
        [{"a": np.array([2 * n, 2 * n + 1]), "b": (float(n), [2 * n])} for n in range(6)],
    ],
    ids=["arrays", "items"],
)
def test_nested_arrays_and_items_are_batched_alike(source):
    batch = next(iter(Resumable(source, 3, shuffle=False)))
    assert batch["a"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert batch["b"][0].tolist() == [0.0, 1.0, 2.0] and batch["b"][1][0].tolist() == [0, 2, 4]
    assert isinstance(batch["b"], tuple) and batch["b"][0].dtype == np.float64


def test_files_are_loaded_and_augmented_as_seed_epoch_and_item_say():
    def load(name):
        return np.full(2, int(name.removesuffix(".npy").removeprefix("part/")))

    def augment(item, rng):
        return item, rng.integers(0, 1 << 30), rng.seed_pair[0]

    names = [f"part/{number}.npy" for number in range(9)]
    one = list(Resumable(names, 4, load=load, augment=augment, seed=5))
    assert np.concatenate([batch[0][:, 0] for batch in one]).tolist() == order(5, 0, 9).tolist()
    assert len({draw for batch in one for draw in batch[1].tolist()}) == 9
    other = Resumable(names, 2, load=load, augment=augment, seed=5, threads=0)
    other.begin(0, 4)
    for part in range(3):
        rest = np.concatenate([batch[part] for batch in one])[4:]
        assert np.array_equal(np.concatenate([batch[part] for batch in other]), rest)
        other.begin(0, 4)


def test_weights_of_the_user_s_own_are_multiplied():
    x = np.arange(8.0)
    (batch,) = Resumable((x, x, x + 1), global_batch=9, rank=2, ranks=3, shuffle=False)
    assert batch[0].tolist() == [6, 7] and np.allclose(batch[2], np.array([7, 8]) * 3 * 2 / 8)


def test_only_batches_whose_last_one_is_uneven_have_weights():
    for length, count in [(24, 2), (26, 2), (25, 3)]:
        batches = list(Resumable(numbers(length), global_batch=6, rank=1, ranks=2))
        assert {len(batch) for batch in batches} == {count}
        assert count == 2 or {weight for batch in batches[:-1] for weight in batch[2].tolist()} == {1.0}


def test_ranks_that_are_not_given_are_horovods(monkeypatch):
    ranks = {"size": 3, "rank": 1, "is_initialized": True}
    monkeypatch.setitem(
        sys.modules, "horovod.tensorflow", SimpleNamespace(**{name: lambda name=name: ranks[name] for name in ranks})
    )
    data = Resumable(numbers(12), 2, shuffle=False)
    assert (data.rank, data.ranks, len(data), items(data)) == (1, 3, 2, [2, 3, 8, 9])
    ranks["is_initialized"] = False
    assert (data.rank, data.ranks, len(data)) == (0, 1, 6)


def test_what_is_dropped_is_said_once():
    said = []
    data = Resumable(numbers(11), 4, last="drop")
    data.notify = lambda level, message: said.append((level, message))
    assert len(items(data)) == len(items(data)) == 8 and len(data) == 2
    assert said == [
        ("info", 'epoch 0 leaves 3 of 11 items out: they do not fill a global batch of 4 (last="drop")'),
    ]


def test_a_rest_that_a_larger_batch_leaves_out_is_said():
    said = []
    state = Resumable(numbers(11), 2, last="drop").state_at(3, 4)
    data = Resumable(numbers(11), 4, last="drop")
    data.notify = lambda level, message: said.append(message)
    data.set_state(state)
    assert (data.next_epoch, data.begun) == (4, False)
    assert said == ['epoch 3 leaves 3 of 11 items out: they do not fill a global batch of 4 (last="drop")']


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"source": numbers(99)},
            "the source of Resumable: expected number of items 100, as in the checkpoint; found 99",
        ),
        ({"source": (np.arange(100) + 1, np.arange(100))}, "the source of Resumable: expected fingerprint"),
        ({"source": (np.arange(100.0), np.arange(100.0))}, "the source of Resumable: expected fingerprint"),
        ({"seed": 2}, r"Resumable\(seed=\): expected 1, as in the checkpoint; found 2"),
        ({"shuffle": False}, r"Resumable\(shuffle=\): expected True, as in the checkpoint; found False"),
    ],
)
def test_a_state_of_another_source_or_order_is_refused(other, message):
    state = Resumable(numbers(100), 10, seed=1).state_at(3, 4)
    given = {"source": numbers(100), "batch_size": 7, "seed": 1, **other}
    with pytest.raises(OptionError, match=message):
        Resumable(**given).set_state(state)


def test_a_state_that_is_none_is_refused():
    with pytest.raises(CorruptError, match=r"expected the state of a Resumable, with seed.*none with items"):
        Resumable(numbers(100), 10).set_state({"seed": 0, "shuffle": True, "epoch": 1, "length": 100, "fingerprint": 5})
    state = Resumable(numbers(100), 10).state_at(3, 4)
    for wrong in (-1, 2**63, 10**400, 1.5, "7", None, [[-1]]):
        with pytest.raises(CorruptError, match="expected the state of a Resumable, of numbers from 0 on; found items "):
            Resumable(numbers(100), 10).set_state({**state, "items": wrong})
    Resumable(numbers(100), 10).set_state({**state, "epoch": np.int64(3)})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 2, "global_batch": 4}, "batch_size=, global_batch=: expected one of the two; found both"),
        ({}, "batch_size=, global_batch=: expected one of the two; found neither"),
        (
            {"global_batch": 5, "ranks": 2, "rank": 0},
            "global_batch=: expected a multiple of the number of ranks, 2; found 5",
        ),
        ({"batch_size": 0}, "batch_size=: expected a whole number from 1"),
        ({"batch_size": 2, "seed": -1}, "seed=: expected a whole number from 0"),
        ({"batch_size": 2, "last": "pad"}, "last=: expected one of 'weighted', 'drop'"),
        ({"batch_size": 99, "last": "drop"}, 'last="drop": expected at least 99 items'),
        ({"batch_size": 2, "rank": 2, "ranks": 2}, "rank=: expected a whole number from 0 to 1"),
        ({"batch_size": 2, "threads": -1}, "threads=: expected a whole number from 0"),
        ({"batch_size": 2, "source": iter([])}, "the source: expected arrays, or an object with len.*a list_iterator"),
        ({"batch_size": 2, "source": []}, "the source: expected at least one item"),
        ({"batch_size": 2, "source": (["a", "b"], np.arange(2))}, "the source's part /0/0: expected an array"),
        ({"batch_size": 2, "source": (np.arange(2), np.arange(3))}, "the source's array /1: expected 2 items.*found 3"),
    ],
)
def test_wrong_arguments_are_refused(given, message):
    with pytest.raises(OptionError, match=message):
        Resumable(**{"source": numbers(10), **given})


@pytest.mark.full
def test_items_that_a_source_leaves_out_are_told_with_the_way_out():
    left_out = [None if number % 3 else (float(number), 0.0) for number in range(12)]
    with pytest.raises(OptionError, match=r"the source's item \d+: .*None.*\.filter\(\) of grain.*kept = \[.*load="):
        next(iter(Resumable(left_out, 4, threads=0)))
    with pytest.raises(OptionError, match=r"load=: expected an item.*found None for the source's item \d+"):
        next(iter(Resumable([*range(12)], 4, load=left_out.__getitem__, threads=0)))
    kept = [number for number in range(12) if left_out[number] is not None]
    assert len([*Resumable(kept, 1, load=left_out.__getitem__)]) == 4, "the way out"


@pytest.mark.full
@pytest.mark.skipif(not jobs.installed("grain"), reason="the package grain is not installed")
def test_grain_datasets_without_an_epoch_are_refused_with_the_way_out():
    import grain

    numbers = grain.MapDataset.source(range(12)).map(lambda number: (float(number), 0.0))
    for endless in (numbers.repeat(), numbers.repeat().batch(4), numbers.repeat().shuffle(seed=1)):
        with pytest.raises(OptionError, match=r"the source: expected a length.*without end.*eave \.repeat\(\) out"):
            Resumable(endless, 4)
    assert len(Resumable(numbers.repeat(3), 4)) == 9
    odd = numbers.filter(lambda item: item[0] % 2)
    for use in (lambda data: next(iter(data)), lambda data: data.state()):
        with pytest.raises(OptionError, match=r"None.*\.filter\(\) of grain"):
            use(Resumable(odd, 4, threads=0))
    with pytest.raises(OptionError, match=r"an object with len\(\) and \[i\]; found a \w*IterDataset"):
        Resumable(numbers.to_iter_dataset(), 4)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (np.arange(5), "a ndarray"),
        ({"x": np.arange(5), "y": np.arange(5)}, "a dict"),
        ((np.arange(5),), "a tuple of 1"),
        ((np.arange(5),) * 4, "a tuple of 4"),
    ],
)
def test_unequal_shares_need_items_with_a_target(source, found):
    with pytest.raises(OptionError, match=rf'last="weighted": expected items .* found {found}\. .*last="drop"'):
        next(iter(Resumable(source, global_batch=2, rank=0, ranks=2)))


def test_moved_files_are_the_same_source_and_renamed_ones_another():
    def state(*names):
        return Resumable(list(names), 1, load=str).state()

    assert state("/old/a/1", "/old/b/2") == state("/scratch/7/a/1", "/scratch/7/b/2") != state("/old/a/1", "/old/b/3")
    assert state("/old/one") == state("new/one") != state("/old/two")


def names(count):
    """Names of files, in order."""
    return [f"/data/set/part-{number % 7}/{number:05}.npz" for number in range(count)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("source", "value"),
    [
        (names(5000), 1788462151),
        ([*map(Path, names(5000))], 1788462151),
        (["/data/one"], 3784529242),
        (["b", "a"], 866317393),
        ([f"/data/größe-{number}-\udcff\u4e2d" for number in range(3)], 4164224542),
        ([(np.float32(number), {"b": [number], "a": "x"}) for number in range(10)], 2358810457),
        ((np.arange(100), np.arange(100) % 3), 2344278933),
    ],
    ids=["names", "paths", "one", "bare", "odd", "items", "arrays"],
)
def test_fingerprints_are_those_in_the_checkpoints_of_older_versions(source, value):
    load = str if isinstance(source, list) and isinstance(source[0], (str, Path)) else None
    assert Resumable(source, 1, load=load).state()["fingerprint"] == value


@pytest.mark.full
@pytest.mark.parametrize("make", [str, Path])
def test_a_list_of_files_takes_at_most_16_bytes_of_memory_a_file(make):
    """At any time: when the object is made, an epoch begins, and the fingerprint is computed."""
    files = [make(name) for name in names(1 << 17)]
    peaks = []
    tracemalloc.start()

    def peak(step):
        tracemalloc.reset_peak()
        done = step()
        peaks.append(tracemalloc.get_traced_memory()[1] / len(files))
        return done

    data = peak(lambda: Resumable(files, 32, load=lambda name: 0.0, threads=0))
    peak(lambda: next(iter(data)))
    peak(data.state)
    data.begin(1)
    peak(lambda: next(iter(data)))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert max(peaks) <= 16, peaks
    assert held <= 5 * len(files), "an order"


def test_items_that_are_drawn_anew_count_by_their_form():
    def state(scale, width=3):
        class Noisy(list):
            def __getitem__(self, index):
                return np.random.random(width) * scale

        return Resumable(Noisy(range(20)), 2).state()

    assert state(1) == state(5) != state(1, width=4)


def test_the_room_is_there_without_an_import_of_its_own():
    assert deepfreeze.data.Resumable is Resumable


def test_a_loop_that_tells_what_is_trained_sees_its_own_epoch():
    """Also when the last batch of a pass was handed out, and is not trained yet."""
    data = Resumable(numbers(6), 2, seed=3)
    data.set_state(data.state() | {"items": 4})
    data.begin_loop()  # as deepfreeze.capture(data=data) does
    epochs = []
    for _ in data:
        epochs.append(data.epoch)
        data.advance()
    for _ in data:
        epochs.append(data.epoch)
        data.advance()
    assert epochs == [0, 1, 1, 1] and data.epoch == 2


def test_a_list_of_arrays_is_told_apart_from_a_tuple():
    with pytest.raises(OptionError, match=r"arrays side by side are a tuple, Resumable\(\(x, y\)\)"):
        next(iter(Resumable([np.zeros((4, 2)), np.zeros(4)], 2)))
