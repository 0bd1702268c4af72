"""The structure: canonical bytes, strict reading."""

import hashlib
import itertools
import json

import pytest
from hypothesis import strategies as st

from deepfreeze.errors import CorruptError, StructureError
from deepfreeze.format.structure import LAYOUTS, STATES, Placed, Structure
from deepfreeze.format.tensors import DTYPES, TensorSpec
from tests.support import edits, files
from tests.support.properties import holds

FRAMEWORK = {"api": "keras", "keras": "3.15.1", "tensorflow": "2.21.0"}


def tensor(name="a", dtype="float32", shape=(3, 4), role="replicated", path=None, offset=4096):
    return Placed(TensorSpec(name, dtype, shape, role), path or f"layers/{name}", offset)


def structure(*tensors, size=10000, state="full"):
    return Structure(tuple(tensors), size, FRAMEWORK, state)


GOLDEN_1 = (
    b'{"file":"model.weights.h5","file_size":10000,"format":1,"framework":{"api":"keras","keras":"3.15.1",'
    b'"tensorflow":"2.21.0"},"layout":"keras-h5","state":"full","tensors":[{"dtype":"float32","name":"a","nbytes":48,'
    b'"offset":4096,"path":"layers/a","role":"replicated","shape":[3,4]}]}'
)


GOLDEN = GOLDEN_1.replace(b'"format":1', b'"format":2').removesuffix(b"}") + b',"values":{}}'


def test_bytes_are_those_of_the_format_document():
    made = structure(tensor())
    assert made.to_bytes() == GOLDEN
    assert made.hash == hashlib.sha256(GOLDEN).hexdigest() == made.digest.hex()
    assert Structure.from_bytes(GOLDEN, "x") == made


def test_a_structure_of_version_1_is_read_and_keeps_its_bytes():
    read = Structure.from_bytes(GOLDEN_1, "x")
    assert read.to_bytes() == GOLDEN_1 and read.hash == hashlib.sha256(GOLDEN_1).hexdigest()
    assert read.version == 1 and read.tensors == structure(tensor()).tensors and read.values == {}


def test_values_that_nobody_knows_are_kept():
    data = GOLDEN.replace(b'"values":{}', b'"values":{"from the future":[1,{"a":null}]}')
    read = Structure.from_bytes(data, "x")
    assert read.values == {"from the future": [1, {"a": None}]} and read.to_bytes() == data
    assert read.tensors == structure(tensor()).tensors


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


text = st.text("ab/._ -\u00e9\u6f22\U0001f600", min_size=1, max_size=8)
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@st.composite
def contents(draw) -> tuple[list[Placed], int]:
    """Tensors in any order that follow each other in a file, with gaps or none between them, and the file's size."""
    tensors, end = [], draw(st.integers(0, 50))
    for number, (name, dtype, shape, role, gap) in enumerate(
        draw(
            st.lists(
                st.tuples(
                    text,
                    st.sampled_from(DTYPES),
                    shapes,
                    st.sampled_from(["replicated", "rank-local", "per-rank"]),
                    st.integers(0, 9),
                ),
                max_size=8,
                unique_by=lambda part: part[0],
            )
        )
    ):
        path = f"seeds/{number}" if role == "per-rank" else f"layers/{number}"
        made = Placed(TensorSpec(name, dtype, shape, role), path, 0)
        if made.nbytes:
            made = Placed(made.spec, path, end)
            end = made.end + gap
        tensors.append(made)
    return draw(st.permutations(tensors)), max(1, end + draw(st.integers(0, 9)))


structures = st.builds(
    lambda content, versions, state, layout: Structure(
        tuple(content[0]), content[1], {**FRAMEWORK, **versions}, state, layout
    ),
    contents(),
    st.fixed_dictionaries({"keras": text, "tensorflow": text}),
    st.sampled_from(STATES),
    st.sampled_from(LAYOUTS),
)


@holds(made=structures)
def test_every_structure_reads_back_from_its_bytes(made):
    data = made.to_bytes()
    assert Structure.from_bytes(data, "x") == made and data.isascii()
    assert made.hash == hashlib.sha256(data).hexdigest()


@holds(content=contents(), order=st.randoms(use_true_random=False))
def test_bytes_do_not_depend_on_the_order_in_which_tensors_are_given(content, order):
    """But for the per-rank ones, whose order is that of their values in the records."""
    tensors, size = content
    shared = [one for one in tensors if one.spec.role != "per-rank"]
    private = [one for one in tensors if one.spec.role == "per-rank"]
    order.shuffle(shared)
    made = structure(*tensors, size=size)
    assert structure(*private, *shared, size=size).to_bytes() == made.to_bytes()
    assert made.per_rank == private == list(made.tensors[len(shared) :])
    assert made.private_nbytes == sum(one.spec.nbytes for one in private)


@holds(content=contents())
def test_tensors_and_gaps_cover_the_file_exactly_once(content):
    """And what is within a range is what has a byte there, for all ranges that begin and end where tensors do."""
    made = structure(*content[0], size=content[1])
    owners: list[list[str]] = [[] for _ in range(made.file_size)]
    for one in made.tensors:
        for byte in range(one.offset, one.end):
            owners[byte].append(one.spec.name)
    for offset, size in made.gaps():
        assert size > 0
        for byte in range(offset, offset + size):
            owners[byte].append("")
    assert all(len(names) == 1 for names in owners)
    edges = sorted({made.file_size, *(edge for one in made.tensors for edge in (one.offset, one.end))})
    for begin, end in itertools.combinations(edges, 2):
        inside = [names[0] for names in owners[begin:end] if names[0]]
        assert made.within(begin, end - begin) == list(dict.fromkeys(inside))


@holds(content=contents(), which=st.integers(0, 7), by=st.integers(-20, 20))
def test_a_tensor_moved_into_another_or_out_of_the_file_is_refused(content, which, by):
    tensors, size = content
    shared = [one for one in tensors if one.nbytes]
    if not shared:
        return
    chosen = shared[which % len(shared)]
    moved = Placed(chosen.spec, chosen.path, chosen.offset + by)
    others = [one for one in tensors if one is not chosen]
    free = moved.offset >= 0 and moved.end <= size
    free = free and all(moved.end <= one.offset or moved.offset >= one.end for one in others if one.nbytes)
    if free:
        structure(*others, moved, size=size)
    else:
        with pytest.raises(StructureError):
            structure(*others, moved, size=size)


@holds(made=structures, edit=edits.of_bytes)
def test_no_other_bytes_are_accepted_than_canonical_ones(made, edit):
    data = edit(made.to_bytes())
    try:
        read = Structure.from_bytes(data, "x")
    except CorruptError:
        return
    assert read.to_bytes() == data


@holds(made=structures, edit=edits.of_json)
def test_no_other_values_are_accepted_than_canonical_ones(made, edit):
    """Whatever is put in place of any value, or spelled in another way."""
    data = edit(json.loads(made.to_bytes()))
    try:
        read = Structure.from_bytes(data, "x")
    except CorruptError:
        return
    assert read.to_bytes() == data


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

    yield edit(lambda v, t: v.update(format=1))
    yield edit(lambda v, t: v.update(format=3))
    yield edit(lambda v, t: v.update(values=[]))
    yield edit(lambda v, t: v.pop("values"))
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
    yield GOLDEN.replace(b'"format":2,', b'"format":2,"format":2,')
    yield GOLDEN.replace(b":2,", b": 2,")
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
