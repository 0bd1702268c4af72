"""What each rank saves besides tensors, and who gets it when the number of ranks changes."""

from __future__ import annotations

import types

import numpy as np
import pytest

from deepfreeze.errors import CorruptError, OptionError
from deepfreeze.format import state_tree
from deepfreeze.state.attachments import Attachments, SavedAttachments


class Own:
    """Takes its own state alone."""

    got = None

    def state_dict(self):
        return {"rank": 0}

    def load_state_dict(self, state):
        self.got = state


class Every(Own):
    """Takes the states of all ranks."""

    def load_state_dict(self, states_of_all_ranks, rank, world):
        self.got = states_of_all_ranks, rank, world


class Options(Own):
    """Takes its own state, and options that have defaults."""

    def load_state_dict(self, state, strict=True, *, assign=False, **more):
        self.got = state


def saved(world, name="reader"):
    """As ranks with different states have saved them."""
    trees = {rank: {"objects": {name: {"rank": rank}}, "rng": {}} for rank in range(world)}
    return SavedAttachments({rank: state_tree.encode(tree, "x") for rank, tree in trees.items()}, world, "records")


@pytest.mark.parametrize("kind", [Own, Options])
@pytest.mark.parametrize(
    ("rank", "world", "got", "left"),
    [(1, 3, 1, False), (2, 3, 2, False), (0, 1, 0, True), (1, 2, 1, True), (3, 4, 0, False), (7, 8, 0, False)],
)
def test_an_object_gets_its_own_state_or_rank_0s_and_what_is_left_is_told(kind, rank, world, got, left):
    thing = kind()
    attachments = Attachments({"reader": thing}, None)
    assert not attachments.every_rank
    assert attachments.load(saved(3), rank, world) == (["reader"] if left else [])
    assert thing.got == {"rank": got}


@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 2), (2, 3), (4, 5)])
def test_an_object_that_takes_all_states_gets_all_of_them_and_none_is_left(rank, world):
    thing = Every()
    attachments = Attachments({"reader": thing}, None)
    assert attachments.every_rank and attachments.load(saved(3), rank, world) == []
    assert thing.got == ([{"rank": 0}, {"rank": 1}, {"rank": 2}], rank, world)


def test_an_object_that_was_not_saved_stays_as_it_is():
    thing = Own()
    assert Attachments({"other": thing}, None).load(saved(3), 0, 1) == [] and thing.got is None


def test_a_method_that_does_not_tell_its_parameters_takes_its_own_state():
    thing = types.SimpleNamespace(state_dict=dict, load_state_dict=type("C", (), {"__call__": max})().__call__)
    assert not Attachments({"it": thing}, None).every_rank


def test_state_at_is_asked_in_place_of_state_dict():
    class At(Own):
        def state_at(self, step):
            return {"rank": step}

    for kind in (At, type("Alone", (), {"state_at": At.state_at, "load_state_dict": Own.load_state_dict})):
        tree = state_tree.decode(Attachments({"it": kind()}, None).take(40), "x")
        assert tree["objects"] == {"it": {"rank": 40}}


@pytest.mark.parametrize(
    "thing", [object(), types.SimpleNamespace(state_dict=dict), types.SimpleNamespace(load_state_dict=print)]
)
def test_an_object_without_two_methods_is_refused(thing):
    with pytest.raises(OptionError, match="state_dict"):
        Attachments({"it": thing}, None)


@pytest.mark.parametrize("tree", [None, {}, {"objects": {}}, {"objects": [], "rng": {}}, [1]])
def test_bytes_without_states_are_corrupt(tree):
    data = SavedAttachments({0: state_tree.encode(tree, "x")}, 1, "records")
    with pytest.raises(CorruptError) as caught:
        Attachments({"it": Own()}, None).load(data, 0, 1)
    assert caught.value.where == "records"


def test_states_have_any_size_up_to_that_of_a_record():
    thing = Own()
    attachments = Attachments({"it": thing}, None)
    for size in (0, 100 << 20, 5):
        thing.state_dict = lambda size=size: {"all": bytes(size)}
        attachments.check(1)
        assert 0 < len(attachments.take(1)) - size < 200
    thing.state_dict = lambda: {"all": np.zeros(193 << 17)}
    with pytest.raises(OptionError, match="at most 201326592 bytes"):
        attachments.check(1)
