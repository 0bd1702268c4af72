"""Vocabularies in a structure: their text, their hash, and which layers of two models have different ones."""

import hashlib
import random

import pytest

from deepfreeze.format.structure import Structure
from deepfreeze.format.vocabularies import VOCABULARIES, Vocabulary, differing, of_values, to_values

FRAMEWORK = {"api": "keras", "keras": "3.15.1", "tensorflow": "2.21.0"}


def words(layer, *found):
    return Vocabulary.of(layer, found)


def test_the_hash_is_that_of_the_format_s_page():
    assert words("a", "cat", "dog").hash == hashlib.sha256(b"3:cat3:dog").hexdigest()
    assert words("a", "cat", "dog").words == 2 and words("a").words == 0
    assert len({words("a", *one).hash for one in (["a", "b"], ["b", "a"], ["ab"], ["", "a", "b"], ["1:a1:b"])}) == 5
    assert words("a", 1, 2).hash == words("a", "1", b"2").hash and words("a", "\ud800").words == 1


def test_vocabularies_come_back_from_a_structure_s_file():
    """A model without vocabularies has the structure that it had before there was this value."""
    found = [words("text", "a"), words("city", "b", "c")]
    structure = Structure((), 1, FRAMEWORK, "full", values=to_values(found))
    assert of_values(Structure.from_bytes(structure.to_bytes(), "here").values) == found
    assert to_values([]) == {} and of_values({}) == []


@pytest.mark.parametrize(
    "value",
    [
        *(None, {}, "text", 3, [None], [[]], [{}], [{"layer": "a", "words": "2", "hash": "b"}], [{"layer": ""}]),
        *([{"layer": "a", "words": words, "hash": "b"}] for words in (-1, 2**63)),
    ],
)
def test_a_form_that_this_version_does_not_know_is_no_vocabulary(value):
    assert of_values({VOCABULARIES: value}) == []


A, B, C = (["ape"], ["bee"], ["cat"])


@pytest.mark.parametrize(
    ("saved", "own", "expected"),
    [
        ({"x": A}, {"x": A}, []),
        ({"x": A}, {"x": B}, ["x"]),
        ({"x": A, "y": B}, {"x": A, "y": C}, ["y"]),
        ({"x": A, "y": B}, {"y": B, "x": A}, []),
        ({"x": A, "y": B}, {"x": B, "y": A}, ["x", "y"]),
        # numbered by Keras, in a process that had made other layers before
        ({"lookup": A, "lookup_1": B}, {"lookup_1": A, "lookup_2": B}, []),
        ({"lookup": A}, {"lookup_1": B}, ["lookup_1"]),
        # one side has a layer more
        ({"x": A}, {"x": A, "y": B}, []),
        ({"x": A}, {}, []),
        ({}, {"x": A}, []),
    ],
)
def test_layers_are_paired_by_name_and_else_in_order(saved, own, expected):
    sides = [[words(layer, *found) for layer, found in side.items()] for side in (saved, own)]
    assert [mine.layer for _, mine in differing(*sides)] == expected


def test_equal_models_never_differ_whatever_their_names_are():
    rng = random.Random(0)
    for _ in range(200):
        found = [rng.choice([A, B, C]) for _ in range(rng.randrange(5))]
        sides = [[words(f"{name}_{n}", *one) for n, one in enumerate(found)] for name in (rng.choice("xy"), "x")]
        assert differing(*sides) == []
