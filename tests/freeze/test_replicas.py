"""The checksums by which the ranks are compared: of whole tensors, or of parts that go round."""

from __future__ import annotations

import itertools
import struct
import types

import numpy as np
import pytest

from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import TensorSpec
from deepfreeze.freeze.replicas import ReplicaChecksums
from deepfreeze.plan.comparisons import WHOLE, Compared
from tests.support import files

# Bytes of each tensor: tensors of several parts, parts of several tensors, and one without bytes.
SIZES = (5000, 0, 3, 40_000, 1, 4095, 12_288)
TOTAL = sum(SIZES)


def checksums(data, world=2):
    """Of tensors with these bytes."""
    tensors, placed, at = [], [], 0
    for number, one in enumerate(data):
        spec = TensorSpec(f"t{number}", "uint8", (len(one),), "replicated")
        placed.append(Placed(spec, f"layers/{number}", at if len(one) else 0))
        tensors.append(types.SimpleNamespace(path=f"layers/{number}", variable=number))
        at += len(one)
    framework = {"api": "keras", "keras": "3", "tensorflow": "2"}
    structure = Structure(tuple(placed), max(1, at), framework, "full")
    order = {p.spec.name: n for n, p in enumerate(structure.replicated)}
    capture = types.SimpleNamespace(memory_of=lambda variable: data[variable])
    return ReplicaChecksums(capture, tensors, structure, world), order


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    return [rng.integers(0, 256, size, np.uint8) for size in SIZES]


def test_the_whole_part_has_the_checksum_of_each_whole_tensor(data):
    made, order = checksums(data)
    crcs, values = made.take(WHOLE)
    found = np.frombuffer(crcs, "<u4")
    assert values == {} and made.names == sorted(order, key=order.get)
    assert all(found[order[f"t{n}"]] == files.crc(one.tobytes()) for n, one in enumerate(data))


@pytest.mark.parametrize("parts", [1, 2, 5, 16, 64])
def test_the_parts_cover_each_byte_once_in_whole_pages(data, parts):
    made, _ = checksums(data)
    spans = [made.span(Compared(number, parts)) for number in range(parts)]
    assert spans[0][0] == 0 and spans[-1][1] == TOTAL
    assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))
    assert all(begin % 4096 == 0 for begin, end in spans if begin < end)
    sizes = [end - begin for begin, end in spans]
    assert max(sizes) - min(sizes) <= 2 * 4096


@pytest.mark.parametrize("parts", [2, 7, 16, 64])
def test_any_changed_byte_changes_the_checksums_of_exactly_one_part(data, parts):
    made, _ = checksums(data)
    before = [made.take(Compared(number, parts)) for number in range(parts)]
    rng = np.random.default_rng(2)
    for tensor in (0, 2, 3, 3, 4, 5, 6):
        at = rng.integers(SIZES[tensor])
        data[tensor][at] ^= 1
        after = [made.take(Compared(number, parts)) for number in range(parts)]
        changed = [number for number in range(parts) if after[number] != before[number]]
        assert len(changed) == 1
        (number,) = changed
        assert struct.pack("<QQ", *made.span(Compared(number, parts))) == after[number][1]["compared_part"]
        data[tensor][at] ^= 1


def test_nothing_is_read_of_what_is_not_compared(data):
    made, _ = checksums(data)
    made._capture.memory_of = None
    assert made.take(None) == (bytes(4 * len(SIZES)), {})
    alone, _ = checksums(data, world=1)
    assert alone.take(WHOLE) == (b"", {}) and alone.names == []


def test_much_is_read_by_several_threads():
    data = [np.full(20 << 20, n, np.uint8) for n in range(2)]
    made, order = checksums(data)
    found = np.frombuffer(made.take(WHOLE)[0], "<u4")
    assert all(found[order[f"t{n}"]] == files.crc(one.tobytes()) for n, one in enumerate(data))
