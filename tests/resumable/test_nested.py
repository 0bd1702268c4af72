"""Structures of arrays are mapped and stacked where all of them have the same form."""

import re
from typing import NamedTuple

import numpy as np
import pytest

from deepfreeze.data.nested import leaves, mapped, stacked


class Named(NamedTuple):
    x: object
    y: object


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, "a dict of ['a', 'b'] in one place"),
        ({"a": 1}, {"a": 1, "c": 2}, "a dict of ['a'] in one place"),
        ({"a": 1}, 1, "a dict of ['a'] in one place"),
        ((1, 2), (1, 2, 3), "a tuple of 2 in one place"),
        ([1], 1, "a list of 1 in one place"),
    ],
)
def test_items_of_another_structure_are_not_stacked(first, other, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        stacked([first, first, other])


def test_each_kind_of_structure_is_mapped_to_its_own_kind():
    found = mapped(
        lambda one, other: one + other, {"a": [1, (2, None)], "b": Named(3, 4)}, {"b": (5, 6), "a": ([7, (8, 0)])}
    )
    assert found == {"a": [8, (10, None)], "b": Named(8, 10)} and type(found["b"]) is Named
    assert list(leaves({"b": (1, None), "a": np.float32(2)})) == [("/a", 2), ("/b/0", 1)]
