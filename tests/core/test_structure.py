"""The structure: canonical bytes, strict reading."""

import hashlib
import json

import pytest

from deepfreeze.core.errors import CorruptError, StructureError
from deepfreeze.core.structure import Placed, Structure
from deepfreeze.core.tensors import TensorSpec
from tests.support import files

FRAMEWORK = {"api": "keras", "keras": "3.15.1", "tensorflow": "2.21.0"}


def tensor(name="a", dtype="float32", shape=(3, 4), role="replicated", path=None, offset=4096):
    return Placed(TensorSpec(name, dtype, shape, role), path or f"layers/{name}", offset)


def structure(*tensors, size=10000, state="full"):
    return Structure(tuple(tensors), size, FRAMEWORK, state)


GOLDEN = (
    b'{"file":"model.weights.h5","file_size":10000,"format":1,"framework":{"api":"keras","keras":"3.15.1",'
    b'"tensorflow":"2.21.0"},"layout":"keras-h5","state":"full","tensors":[{"dtype":"float32","name":"a","nbytes":48,'
    b'"offset":4096,"path":"layers/a","role":"replicated","shape":[3,4]}]}'
)


def test_bytes_are_those_of_the_format_document():
    made = structure(tensor())
    assert made.to_bytes() == GOLDEN
    assert made.hash == hashlib.sha256(GOLDEN).hexdigest() == made.digest.hex()
    assert Structure.from_bytes(GOLDEN, "x") == made


def test_a_file_that_is_not_keras_s_own_says_so():
    data = GOLDEN.replace(b'"keras-h5"', b'"plain-h5"')
    made = Structure((tensor(),), 10000, FRAMEWORK, "full", "plain-h5")
    assert made.to_bytes() == data and Structure.from_bytes(data, "x") == made
    assert (made.layout, structure(tensor()).layout) == ("plain-h5", "keras-h5")


def test_a_hand_written_structure_reads_back_to_the_same_bytes():
    data = files.sample().structure
    read = Structure.from_bytes(data, "x")
    assert read.to_bytes() == data
    assert [t.spec.name for t in read.tensors] == ["empty", "dense/kernel", "dense/bias", "bn/mean", "seed"]
    assert [t.spec.name for t in read.per_rank] == ["seed"]
    assert read.private_nbytes == 16


def test_tensors_and_gaps_cover_the_file_exactly_once():
    made = structure(tensor("b", offset=9000), tensor("a"), tensor("e", shape=(0,), offset=0),
                     tensor("s", "int64", (2,), "per-rank", "seeds/0", 0))  # fmt: skip
    ranges = made.gaps() + [(t.offset, t.nbytes) for t in made.tensors if t.nbytes]
    end = 0
    for offset, nbytes in sorted(ranges):
        assert offset == end
        end += nbytes
    assert end == 10000
    assert made.within(4100, 10) == ["a"]


def test_per_rank_tensors_come_last_in_the_order_given():
    seeds = [tensor(n, "int64", (2,), "per-rank", f"seeds/{i}", 0) for i, n in enumerate(["z", "c", "m"])]
    made = structure(*seeds, tensor())
    assert [t.spec.name for t in made.tensors] == ["a", "z", "c", "m"]
    assert Structure.from_bytes(made.to_bytes(), "x") == made


@pytest.mark.parametrize(
    "tensors",
    [
        (tensor(), tensor("b", offset=4100)),
        (tensor(), tensor(offset=5000)),
        (tensor(), tensor("b", offset=5000, path="layers/a")),
        (tensor(offset=9990),),
        (tensor(offset=-1),),
        (tensor(shape=(0,), offset=1),),
        (tensor(dtype="float128"),),
        (tensor(dtype="object"),),
        (tensor(path="../a"),),
        (tensor(path="/a"),),
        (tensor(role="other"),),
        (tensor(name=""),),
    ],
)
def test_a_contradictory_structure_is_refused(tensors):
    with pytest.raises(StructureError):
        structure(*tensors)


def _edits():
    def edit(change):
        value = json.loads(GOLDEN)
        change(value, value["tensors"][0])
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    yield edit(lambda v, t: v.update(format=2))
    yield edit(lambda v, t: v.update(format=True))
    yield edit(lambda v, t: v.update(file="../model.weights.h5"))
    yield edit(lambda v, t: v.update(extra=1))
    yield edit(lambda v, t: v.pop("state"))
    yield edit(lambda v, t: v.update(layout="h5"))
    yield edit(lambda v, t: v.update(tensors={}))
    yield edit(lambda v, t: v.update(tensors=[None]))
    yield edit(lambda v, t: v.update(framework=[]))
    yield edit(lambda v, t: v["framework"].update(keras=3))
    yield edit(lambda v, t: v.update(file_size=float("nan")))
    yield edit(lambda v, t: v.update(file_size=1e4))
    yield edit(lambda v, t: t.update(nbytes=49))
    yield edit(lambda v, t: t.update(shape=[3, -4]))
    yield edit(lambda v, t: t.update(shape=[2**62, 2**62]))
    yield edit(lambda v, t: t.update(shape=[3, True]))
    yield edit(lambda v, t: t.update(offset=2**64))
    yield edit(lambda v, t: t.update(path="layers/../../a"))
    yield edit(lambda v, t: t.update(name="a\x1b[31m"))
    yield edit(lambda v, t: t.update(name=["a"]))
    yield GOLDEN + b"\n"
    yield GOLDEN.replace(b'"format":1,', b'"format":1,"format":1,')
    yield GOLDEN.replace(b":1,", b": 1,")
    yield GOLDEN.replace(b"10000", b"9" * 5000)
    yield b"[" * 100000
    yield b"\xff\xfe"
    yield b""
    yield b"null"


@pytest.mark.parametrize("data", list(_edits()))
def test_anything_but_a_canonical_structure_is_corrupt(data):
    with pytest.raises(CorruptError) as caught:
        Structure.from_bytes(data, "run/structures/x.json")
    assert caught.value.where == "run/structures/x.json"


@pytest.mark.parametrize("length", range(0, len(GOLDEN), 7))
def test_a_truncated_structure_is_corrupt(length):
    with pytest.raises(CorruptError):
        Structure.from_bytes(GOLDEN[:length], "x")
