"""A ``Resumable`` reads sources of three kinds, and refuses other objects."""

from pathlib import Path

import numpy as np
import pytest

from deepfreeze.data.source import Arrays, Items, KerasBatches, source_of
from deepfreeze.errors import OptionError


class Long:
    """Items without end, and as many of them as ``len`` says."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        return number


class InFile(Long):
    """A dataset of a file, as h5py's: it has a shape, and is read where it is indexed."""

    shape = (3, 2)


@pytest.mark.parametrize(
    ("given", "kind", "batched", "plain"),  # None: a Keras's
    [
        (np.zeros((3, 2)), Arrays, False, True),
        ((np.zeros(3), {"a": np.zeros(3)}), Arrays, False, True),
        ([1, 2, 3], Items, False, False),
        (InFile(3), Items, False, False),
        (None, KerasBatches, True, False),
    ],
    ids=["array", "arrays", "items", "file", "batches"],
)
def test_a_source_is_told_by_what_it_is(sequence, given, kind, batched, plain):
    source = source_of(sequence if given is None else given, None)
    assert (type(source), source.length, source.batched, source.plain) == (kind, 3, batched, plain)
    assert source.names() is None


def test_a_keras_s_batches_are_items_and_their_lists_are_tuples(sequence):
    source = source_of(sequence, None)
    for batch in (source.item(2), source.batch(np.array([2]))):
        assert type(batch) is tuple and [part.tolist() for part in batch] == [[2, 2], [-2, -2]]
    one = KerasBatches([np.arange(4)])
    assert one.length == 1 and one.item(0).tolist() == [0, 1, 2, 3]
    with pytest.raises(OptionError, match=r"load=: expected no load= for a PyDataset or Sequence.*; found a function"):
        source_of(sequence, load=len)


def test_items_are_names_of_files_if_something_loads_them():
    for given, load, names in [
        (["a", "b"], len, ["a", "b"]),
        ([Path("a"), Path("b")], len, ["a", "b"]),
        (["a", "b"], None, None),
        ([1, 2], abs, None),
        ([1, 2], None, None),
    ]:
        found = Items(given, load).names()
        assert (found if found is None else [*found]) == names


def test_a_length_that_stands_for_no_end_is_refused():
    assert source_of(Long(1 << 40), None).length == 1 << 40
    with pytest.raises(OptionError, match="without end"):
        source_of(Long((1 << 40) + 1), None)


@pytest.mark.parametrize("given", [(), {}, [], np.zeros((0, 2))])
def test_a_source_has_items(given):
    with pytest.raises(OptionError, match="the source: expected at least one item; found none"):
        source_of(given, None)


@pytest.mark.parametrize("load", [None, abs])
@pytest.mark.parametrize("given", [np.array(3.0), "text", b"bytes", 5, iter([1])])
def test_what_has_no_items_is_no_source(given, load):
    with pytest.raises(OptionError, match=r"the source: expected arrays, or an object with len\(\) and \[i\]; found a"):
        source_of(given, load)


@pytest.mark.parametrize("given", [{"a": np.arange(3)}, (np.arange(3),)])
def test_arrays_side_by_side_are_not_loaded(given):
    with pytest.raises(OptionError, match=r"the source: expected arrays, or an object with len\(\) and \[i\]; found a"):
        source_of(given, abs)


def test_items_of_several_forms_are_told_by_three_of_them_and_the_reason():
    long = "k" * 300
    items = Items([{long: 1}, {"other": 1}, {long: 2}, {long: 3}, {long: 4}], None)
    with pytest.raises(OptionError) as refused:
        items.batch(np.array([4, 0, 2, 1]))
    expected = f"a dict of ['{long}']"[:200]
    assert "the source's items [4, 0, 2]: " in str(refused.value) and f"found {expected}. " in str(refused.value)
