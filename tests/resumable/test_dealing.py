"""An epoch's items are dealt over the ranks: each once, through restarts with other numbers of ranks, and each counts the same."""

import numpy as np
import pytest
from hypothesis import strategies as st

from deepfreeze.data.dealing import Dealing
from deepfreeze.errors import OptionError
from tests.support.properties import holds

sizes = {"length": st.integers(1, 400), "ranks": st.integers(1, 5), "each": st.integers(1, 12)}


def step_of(dealing, done, step):
    """The places that all ranks together train in a step, without the copies; and the weights of all rows, by rank."""
    shares = [dealing.share(done, step, rank) for rank in range(dealing.ranks)]
    places = [place for share in shares if share.weight for place in range(share.start, share.stop)]
    return places, [[share.weight] * (share.stop - share.start) for share in shares]


@holds(**sizes, seed=st.integers(0, 2**31))
def test_every_item_once_in_an_epoch_through_restarts_with_other_ranks(length, ranks, each, seed):
    chance = np.random.default_rng(seed)
    done, places = 0, []
    while done < length:
        dealing = Dealing(length, ranks, ranks * each)
        for step in range(int(chance.integers(1, dealing.batches(done) + 1))):
            trained, weights = step_of(dealing, done, step)
            assert all(weights)  # each rank has a batch
            assert all(len(rows) == 1 for rows in weights if rows[0] == 0), "a copy of one item"
            places += trained
        done = dealing.place(done, step + 1)
        assert len(places) == done
        ranks, each = int(chance.integers(1, 6)), int(chance.integers(1, 13))
    assert places == list(range(length))


@holds(**sizes)
def test_the_mean_over_the_ranks_is_the_mean_over_the_items(length, ranks, each):
    dealing, losses = Dealing(length, ranks, ranks * each), np.random.default_rng(1).random(length)
    for step in range(dealing.batches(0)):
        shares = [dealing.share(0, step, rank) for rank in range(ranks)]
        means = [np.mean(share.weight * losses[share.start : share.stop]) for share in shares]
        places, weights = step_of(dealing, 0, step)
        assert np.mean(means) == pytest.approx(np.mean(losses[places]))
        if step + 1 < dealing.batches(0) or not dealing.needs_weights(0):
            assert {weight for row in weights for weight in row} == {1.0}


@holds(**sizes, done=st.integers(0, 400))
def test_what_is_dropped_is_what_does_not_fill_a_global_batch(length, ranks, each, done):
    size = ranks * each
    if length < size:
        with pytest.raises(OptionError, match=r'last="drop": expected at least .* items'):
            Dealing(length, ranks, size, "drop")
        return
    dealing, done = Dealing(length, ranks, size, "drop"), min(done, length)
    trained = [place for step in range(dealing.batches(done)) for place in step_of(dealing, done, step)[0]]
    assert trained == list(range(done, length - dealing.left_out(done))) and dealing.left_out(done) < size
    assert not dealing.needs_weights(done) and len(trained) % size == 0
    assert Dealing(length, ranks, size).left_out(done) == 0, "all are trained"


@holds(**sizes, done=st.integers(0, 399))
def test_weights_are_needed_where_the_last_step_of_what_is_left_is_uneven(length, ranks, each, done):
    dealing, done = Dealing(length, ranks, ranks * each), min(done, length - 1)
    _, weights = step_of(dealing, done, dealing.batches(done) - 1)
    assert dealing.needs_weights(done) == ({weight for row in weights for weight in row} != {1.0})


def test_the_ranks_divide_the_global_batch():
    with pytest.raises(OptionError, match="global_batch=: expected a multiple of the number of ranks, 3; found 8"):
        Dealing(100, 3, 8)
