"""Which names a call of transfer means, what they become, and which layer is which when Keras has numbered them."""

import fnmatch

import pytest
from hypothesis import strategies as st

from deepfreeze.errors import OptionError
from deepfreeze.format.tensors import TensorSpec
from deepfreeze.matching.match import Weight, match
from deepfreeze.reuse.names import Patterns, Rename, near
from tests.support.properties import holds

NAMES = ["conv/kernel", "conv/bias", "conv_1/kernel", "block/conv/kernel", "scale"]


def chosen(include=None, exclude=None):
    patterns = Patterns(include, exclude)
    return [name for name in NAMES if patterns.reason_to_skip(name) is None]


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        (None, None, NAMES),
        ("conv", None, NAMES[:2]),
        ("conv*", None, NAMES[:3]),
        ("conv/*", None, NAMES[:2]),
        ("*/kernel", None, ["conv/kernel", "conv_1/kernel", "block/conv/kernel"]),
        ("block", None, ["block/conv/kernel"]),
        ("/block/conv/", None, ["block/conv/kernel"]),
        (["scale", "conv_[0-9]"], None, ["conv_1/kernel", "scale"]),
        (None, ("conv", "scale"), ["conv_1/kernel", "block/conv/kernel"]),
        ("conv*", "*bias", ["conv/kernel", "conv_1/kernel"]),
        ([], None, []),
        ("CONV", None, []),
    ],
)
def test_a_pattern_covers_names_and_what_is_below_them(include, exclude, wanted):
    assert chosen(include, exclude) == wanted


def test_a_reason_says_which_side_left_something_out():
    patterns = Patterns("conv", "*bias")
    assert [patterns.reason_to_skip(name) for name in NAMES[:3]] == [None, "excluded", "not included"]
    assert patterns.reason_to_skip("other", "conv/kernel") is None
    patterns.check(NAMES)
    with pytest.raises(OptionError):
        patterns.check(["x"])


@pytest.mark.parametrize(
    ("rename", "name", "wanted", "rest"),
    [
        (None, "a/b", "a/b", "a/b"),
        ({"a": "c"}, "a/b", "c/b", "b"),
        ({"a": "c"}, "ab/b", "ab/b", "ab/b"),
        ({"a": "c/d"}, "a", "c/d", ""),
        ({"a": "c", "a/b": "d"}, "a/b/e", "d/e", "e"),
        ({"": "c"}, "a/b", "c/a/b", "a/b"),
        ({"a": ""}, "a/b", "b", "b"),
        ({"/a/": "/c/"}, "a/b", "c/b", "b"),
        (str.upper, "a/b", "A/B", ""),
    ],
)
def test_renaming_and_what_it_leaves_as_it_was(rename, name, wanted, rest):
    made = Rename(rename)(name)
    assert (made.name, made.rest) == (wanted, rest)
    if not callable(rename):
        assert Rename(rename).original(made.name) == name


# --- for any names

paths = st.lists(st.sampled_from(["a", "b", "ab", "a_1"]), min_size=1, max_size=4).map("/".join)
# In the model of other components, so that what is renamed can't be taken for what was not.
others = st.lists(st.sampled_from(["x", "y", "xy"]), min_size=1, max_size=3).map("/".join)
mappings = st.dictionaries(paths | st.just(""), others, max_size=4)
patterns = st.lists(paths | st.sampled_from(["*", "a*", "*/b", "a/?", "[ab]", "A", "*_[0-9]/*"]), max_size=3)


def leading(name: str) -> list[str]:
    """The name and all that it is below, the longest first; "" is the root."""
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


@holds(rename=mappings, name=paths)
def test_the_longest_prefix_that_is_renamed_counts_and_nothing_else(rename, name):
    made = Rename(rename)(name)
    old = next((part for part in leading(name) if part in rename), None)
    rest = name if old is None else name[len(old) :].strip("/")
    assert made.rest == rest
    assert made.name == (name if old is None else "/".join(part for part in (rename[old], rest) if part))


@holds(rename=mappings, names=st.lists(paths, max_size=8, unique=True))
def test_renaming_has_an_inverse_and_is_done_once(rename, names):
    """Where no two names are renamed to one, the checkpoint's name is found back; what is renamed is not renamed again."""
    rename = {old: new for new, old in {new: old for old, new in rename.items()}.items()}
    renaming = Rename(rename)
    made = [renaming(name).name for name in names]
    assert [renaming.original(name) for name in made] == names and len(set(made)) == len(names)
    if "" not in rename:
        assert [renaming(name).name for name in made] == made


@holds(rename=mappings, name=paths)
def test_slashes_around_a_renamed_prefix_change_nothing(rename, name):
    assert Rename({f"/{old}/": f"/{new}/" for old, new in rename.items()})(name) == Rename(rename)(name)


@holds(include=st.none() | patterns, exclude=patterns, names=st.lists(paths, max_size=6))
def test_a_pattern_covers_a_name_or_what_the_name_is_below(include, exclude, names):
    def covered(name: str, globs: list[str]) -> bool:
        return any(fnmatch.fnmatchcase(part, glob) for part in leading(name)[:-1] for glob in globs)

    chosen = Patterns(include, exclude)
    for name in names:
        outside = None if include is None or covered(name, include) else "not included"
        assert chosen.reason_to_skip(name) == ("excluded" if covered(name, exclude) else outside)
    slips = [glob for glob in [*(include or ()), *exclude] if not any(covered(name, [glob]) for name in names)]
    if slips:
        with pytest.raises(OptionError):
            chosen.check(names)
    else:
        chosen.check(names)


def test_names_like_one_that_is_not_there_are_found():
    assert near("cnov*", NAMES)[0] == "conv"
    assert near("blok/conv", NAMES)[0] == "block/conv"
    assert near("zzzzzz", NAMES) == []


# --- which layer is which


def weights(*layers, rest=None):
    """A kernel for each (name, shape); in the file in this order."""
    found = []
    for n, (name, shape) in enumerate(layers):
        spec = TensorSpec(f"{name}/kernel", "float32", shape, "replicated")
        found.append(Weight(spec, f"layers/{n}/vars/0", spec.name, spec.name if rest is None else rest))
    return found


def pairs(saved, own, bases=("dense",), rest=None):
    """(checkpoint's, model's) layer names; None where it is unclear."""
    made = match(weights(*saved, rest=rest), weights(*own), frozenset(bases))
    assert bool(made.unclear) <= (not made.pairs)
    return None if made.unclear else sorted((a.name[:-7], b.name[:-7]) for a, b in made.pairs)


A, B = (4, 4), (4, 5)


@pytest.mark.parametrize(
    ("saved", "own", "wanted"),
    [
        # Counted alike: by name, whatever is missing on either side, whatever the shapes.
        ([("dense", A), ("dense_1", A)], [("dense", A), ("dense_1", B)], [("dense", "dense"), ("dense_1", "dense_1")]),
        (
            [("dense", A), ("dense_1", A), ("dense_2", A)],
            [("dense", A), ("dense_1", A)],
            [("dense", "dense"), ("dense_1", "dense_1")],
        ),
        ([("dense_4", A)], [("dense_4", A), ("dense_5", A)], [("dense_4", "dense_4")]),
        # Nothing in common: in order, if there are as many.
        (
            [("dense", A), ("dense_1", B)],
            [("dense_2", A), ("dense_3", B)],
            [("dense", "dense_2"), ("dense_1", "dense_3")],
        ),
        (
            [("dense_9", A), ("dense_10", A)],
            [("dense_11", A), ("dense_12", A)],
            [("dense_10", "dense_12"), ("dense_9", "dense_11")],
        ),
        ([("dense", A)], [("dense_1", B)], [("dense", "dense_1")]),
        ([("dense", A), ("dense_1", A)], [("dense_2", A)], []),
        # Something in common: only if the shapes rule that out.
        (
            [("dense", A), ("dense_1", B)],
            [("dense_1", A), ("dense_2", B)],
            [("dense", "dense_1"), ("dense_1", "dense_2")],
        ),
        ([("dense", A), ("dense_1", A)], [("dense_1", A), ("dense_2", A)], None),
        ([("dense", A), ("dense_1", A), ("dense_2", A)], [("dense_1", A), ("dense_2", A)], None),
        # Names that people gave.
        ([("block", A), ("block_1", A)], [("block_1", A), ("block_2", A)], [("block_1", "block_1")]),
        (
            [("block_1/dense", A)],
            [("block_1/dense_7", A), ("block_2/dense_8", A)],
            [("block_1/dense", "block_1/dense_7")],
        ),
    ],
)
def test_layers_that_keras_numbered(saved, own, wanted):
    assert pairs(saved, own) == (None if wanted is None else sorted(wanted))
    if wanted is not None:  # a layer of another family changes nothing
        assert pairs([*saved, ("other", A)], [*own, ("other", A)]) == sorted([*wanted, ("other", "other")])


def test_what_was_renamed_is_taken_at_its_word():
    saved = [("dense", A), ("dense_1", A), ("dense_2", A)]
    own = [("dense_1", A), ("dense_2", A)]
    assert pairs(saved, own) is None
    assert pairs(saved, own, rest="kernel") == [("dense_1", "dense_1"), ("dense_2", "dense_2")]


def test_nested_numbers_are_compared_from_the_outside():
    saved = [("my_model/dense", A), ("my_model/dense_1", B), ("my_model/head", A)]
    own = [("my_model_3/dense_7", A), ("my_model_3/dense_8", B), ("my_model_3/head", A)]
    wanted = [(a[0], b[0]) for a, b in zip(saved, own, strict=True)]
    assert pairs(saved, own, bases=("dense", "my_model")) == sorted(wanted)


def test_the_place_in_the_file_counts_where_both_sides_have_it():
    """The place in the file counts where both sides have the same places."""
    saved, own = weights(("dense", A), ("dense_1", A)), weights(("dense_5", A), ("dense_4", A))
    found = match(saved, own, frozenset(["dense"]))
    assert [(a.name, b.name) for a, b in found.pairs] == [
        ("dense/kernel", "dense_5/kernel"),
        ("dense_1/kernel", "dense_4/kernel"),
    ]


def test_variables_that_nobody_named_go_by_their_order_in_the_layer():
    def of(*names):
        specs = [TensorSpec(name, "float32", A, "replicated") for name in names]
        return [Weight(spec, f"layers/mine/vars/{n}", spec.name, spec.name) for n, spec in enumerate(specs)]

    found = match(of("mine/variable_2", "mine/variable_10"), of("mine/variable_11", "mine/variable_12"), frozenset())
    assert [(a.name, b.name) for a, b in found.pairs] == [
        ("mine/variable_2", "mine/variable_11"),
        ("mine/variable_10", "mine/variable_12"),
    ]
