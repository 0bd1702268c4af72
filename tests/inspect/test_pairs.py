"""Which tensor of one checkpoint is which of another."""

import pytest

from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import PER_RANK, REPLICATED, TensorSpec
from deepfreeze.inspect.pairs import pairs

FRAMEWORK = {"api": "keras", "keras": "3.15.1", "tensorflow": "2.21.0"}


def structure(*tensors):
    """A structure of tensors that are given as (path, name, shape)."""
    placed, end = [], 4096
    for path, name, shape in tensors:
        role = PER_RANK if path.startswith("seeds") else REPLICATED
        spec = TensorSpec(name, "int64" if role == PER_RANK else "float32", shape, role)
        placed.append(Placed(spec, path, end if role == REPLICATED else 0))
        end += spec.nbytes if role == REPLICATED else 0
    return Structure(tuple(placed), end, FRAMEWORK, "full")


def labels(first, second, everything=False):
    found = pairs(first, second, everything)
    return [one.label for one in found.both], list(found.only_first), list(found.only_second)


def layers(*names, place="layers/dense", shape=(2,)):
    numbers = ("", *(f"_{n}" for n in range(1, len(names))))
    return [(f"{place}{number}/vars/0", f"{name}/kernel", shape) for number, name in zip(numbers, names, strict=True)]


def test_the_name_of_the_whole_model_is_not_compared():
    first = structure(
        ("layers/dense/vars/0", "nt3/dense/kernel", (2,)), ("layers/conv/vars/0", "nt3/conv/kernel", (2,))
    )
    second = structure(("layers/conv/vars/0", "conv/kernel", (2,)), ("layers/dense/vars/0", "dense/kernel", (2,)))
    assert labels(first, second) == (["dense/kernel", "conv/kernel"], [], [])


def test_numbers_of_keras_are_seen_through_and_both_names_are_said():
    first = structure(*layers("dense", "dense_1"))
    second = structure(
        *layers("dense_7", "dense_8", place="_layer_checkpoint_dependencies/dense")
    )  # as older versions of Keras have it
    assert labels(first, second)[0] == ["dense/kernel = dense_7/kernel", "dense_1/kernel = dense_8/kernel"]


def test_names_of_users_are_compared_as_they_are_with_their_numbers():
    """The group in the file says "dense": Keras has not made the name head_1."""
    first, second = structure(*layers("head_1", "x", shape=(2,))), structure(*layers("head_2", "y", shape=(3,)))
    assert labels(first, second) == ([], ["head_1/kernel", "x/kernel"], ["head_2/kernel", "y/kernel"])
    swapped = structure(*layers("x", "head_1"))
    assert labels(first, swapped) == (["head_1/kernel", "x/kernel"], [], [])


@pytest.mark.parametrize("shape", [(2,), (3,)])
def test_a_layer_that_is_an_attribute_is_found_by_its_place(shape):
    """Its group in the file has the attribute's name. Without the same places on both sides no place says anything."""
    first = structure(("fc/vars/0", "m/dense_4/kernel", (2,)), ("out/vars/0", "m/dense_5/kernel", (2,)))
    second = structure(("fc/vars/0", "m/dense_6/kernel", (2,)), ("out/vars/0", "m/dense_7/kernel", shape))
    both = ["dense_4/kernel = dense_6/kernel", "dense_5/kernel = dense_7/kernel"]
    found, only_first, only_second = labels(first, second)
    assert found == (both if shape == (2,) else []) and len(only_first) == len(only_second) == 2 - len(found)


def test_an_ambiguous_family_is_paired_by_its_plain_names():
    first, second = structure(*layers("dense", "dense_1")), structure(*layers("dense_1", "dense_2", "dense_3"))
    assert labels(first, second) == (["dense_1/kernel"], ["dense/kernel"], ["dense_2/kernel", "dense_3/kernel"])


def test_other_tensors_are_paired_on_demand():
    weights = layers("dense")
    first = structure(*weights, ("optimizer/vars/0", "adam/dense_momentum", (2,)), ("seeds/0", "seed", (2,)))
    second = structure(*weights, ("optimizer/vars/0", "adam_1/dense_momentum", (2,)), ("seeds/0", "seed_1", (2,)))
    assert labels(first, second) == (["dense/kernel"], [], [])
    by_place = ["dense/kernel", "adam/dense_momentum = adam_1/dense_momentum", "seed = seed_1"]
    assert labels(first, second, everything=True) == (by_place, [], [])
    sgd = structure(*weights, ("optimizer/vars/0", "sgd/dense_momentum", (3,)), ("seeds/0", "seed", (2,)))
    expected = (["dense/kernel", "seed"], ["adam/dense_momentum"], ["sgd/dense_momentum"])
    assert labels(first, sgd, everything=True) == expected
