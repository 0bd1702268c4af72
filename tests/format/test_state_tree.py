"""What state_dict() returns comes back as it was; what is no such thing is refused."""

import contextlib
import math
import struct
import sys

import numpy as np
import pytest

from deepfreeze.errors import CorruptError, OptionError
from deepfreeze.format import state_tree
from tests.support import products
from tests.support.seed import SEED

TREE = {
    "epoch": 3,
    "huge": 2**200,
    "text": "Größe \U0001f9ca",
    "raw": b"\0\xff",
    "nothing": None,
    "flags": [True, False],
    "floats": [0.1, math.inf, -math.inf, -0.0],
    "nested": {"tuple": (1, (2, [3])), 7: "a number as a key"},
    "array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "empty": np.zeros((0, 4), np.float64),
    "scalar": np.float32(1.5),
}


def same(a, b):
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return (
        type(a) is type(b)
        and a == b
        and math.copysign(1, a if type(a) is float else 1) == math.copysign(1, b if type(b) is float else 1)
    )


def test_a_tree_comes_back_as_it_was():
    assert same(state_tree.decode(state_tree.encode(TREE, "here"), "there"), TREE)


def test_not_a_number_comes_back():
    assert math.isnan(state_tree.decode(state_tree.encode([math.nan], "here"), "there")[0])


def test_bytes_behind_the_end_do_not_matter():
    assert state_tree.decode(state_tree.encode([1], "here") + b"\0" * 100, "there") == [1]


def test_every_numpy_generators_state_comes_back():
    for kind in ("MT19937", "PCG64", "Philox", "SFC64"):
        state = getattr(np.random, kind)(1).state
        assert same(state_tree.decode(state_tree.encode(state, "here"), "there"), state)


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ({"a": [1, object()]}, "extra['a'][1]"),
        ({"a": {"b": {1, 2}}}, "extra['a']['b']"),
        ({"a": np.array(["text"])}, "extra['a']"),
        ({(1, 2): 3}, "extra"),
        ({"a": lambda: 0}, "extra['a']"),
    ],
)
def test_what_can_not_be_kept_is_named_by_its_place(tree, place):
    with pytest.raises(OptionError) as caught:
        state_tree.encode(tree, "extra")
    assert caught.value.where == place


def test_a_tree_that_never_ends_is_refused():
    tree = []
    tree.append(tree)
    with pytest.raises(OptionError, match="levels"):
        state_tree.encode(tree, "extra")


def header(text):
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\1",
        struct.pack("<Q", 2**63) + b"x" * 100,
        header(b"not json"),
        header(b'{"array":["float32",[1000000000000]]}'),
        header(b'{"array":["float32",[-1]]}'),
        header(b'{"array":["object",[1]]}') + b"\0" * 8,
        header(b'{"array":["float32",[true]]}') + b"\0" * 8,
        header(b'{"array":["float32"]}'),
        header(b'{"bytes":-5}'),
        header(b'{"bytes":99}'),
        header(b'{"dict":[[[],1]]}'),
        header(b'{"dict":{"a":1}}'),
        header(b'{"float":"1e5"}'),
        header(b'{"float":[]}'),
        header(b'{"eval":"1"}'),
        header(b'{"tuple":1}'),
        header(b'{"bytes":1' + b"0" * 4000 + b"}"),
        header(b"[" * 100_000),
        header(b"[" * 60 + b"]" * 60),
        header(b'{"array":["int8",[' + b"1," * 70 + b"1]]}") + b"\0",
        header(b'{"array":["int8",[0,1' + b"0" * 30 + b"]]}"),
        header(b"1" + b"0" * 4300),
        header(b"[-1" + b"0" * 4300 + b"]"),
    ],
)
def test_hostile_bytes_are_refused_without_quoting_them_all(data):
    with pytest.raises(CorruptError) as caught:
        state_tree.decode(data, "there")
    assert len(str(caught.value)) < 500


LONG = "9" * 4000


@pytest.mark.parametrize(
    ("shape", "most"),
    [
        (f"[{','.join([LONG] * 30)}]", 0),
        (f"[2,{2**63}]", 0),
        (f"[{','.join(['1'] * 65)}]", 0),
        (f"[{','.join([str(2**62)] * 64)}]", 64),
        ("[2,3]", 2),
    ],
    ids=["long", "64-bits", "dimensions", "large", "right"],
)
def test_only_sizes_of_63_bits_are_multiplied(shape, most):
    """A tree of a few MB with thousands of integers of thousands of digits as a shape took minutes."""
    data = header(f'{{"array":["int8",{shape}]}}'.encode()) + b"abcdef"
    with products.counted() as multiplied, contextlib.nullcontext() if most == 2 else pytest.raises(CorruptError):
        assert state_tree.decode(data, "there").shape == (2, 3)
    multiplied.check()
    assert multiplied.count == most


@pytest.mark.parametrize("where", ["value", "key"])
def test_an_integer_that_could_not_be_read_back_is_not_written(where):
    def tree(number):
        return [number] if where == "value" else {number: 1}

    for number in (10**4300 - 1, 1 - 10**4300):
        assert state_tree.decode(state_tree.encode(tree(number), "here"), "there") == tree(number)
        with pytest.raises(OptionError, match="an integer of more than 4300 digits"):
            state_tree.encode(tree(number + (1 if number > 0 else -1)), "here")


def test_how_many_digits_are_read_does_not_depend_on_the_program():
    """A program may lift the limit that Python has of its own."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        with pytest.raises(CorruptError, match="an integer of 5000 digits"):
            state_tree.decode(header(b"-" + b"9" * 5000), "there")
        assert state_tree.decode(header(b"-" + b"9" * 4300), "there") == 1 - 10**4300
    finally:
        sys.set_int_max_str_digits(before)


def test_values_that_take_too_much_memory_to_parse_are_refused(monkeypatch):
    """Values that take too much memory to parse are neither written nor read."""
    written = state_tree.encode([1] * 100, "here")
    monkeypatch.setattr(state_tree, "_MAX_HEADER", 100)
    with pytest.raises(OptionError, match="arrays where it has long lists"):
        state_tree.encode([1] * 100, "here")
    with pytest.raises(CorruptError, match="a header of 201 bytes"):
        state_tree.decode(written, "there")
    assert len(state_tree.decode(state_tree.encode(np.ones(100), "here"), "there")) == 100


def test_random_damage_is_refused_or_read_and_never_crashes():
    rng = np.random.default_rng(SEED)
    good = np.frombuffer(state_tree.encode(TREE, "here"), np.uint8)
    for _ in range(2000):
        bad = good.copy()
        bad[rng.integers(0, len(bad), 3)] = rng.integers(0, 256, 3)
        with contextlib.suppress(CorruptError):
            state_tree.decode(bad.tobytes(), "there")
