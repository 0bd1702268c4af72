"""The place of a ``fit`` in its data, through any chain of jobs with other batches and other numbers of ranks: as Keras counts, without
Keras."""

import itertools
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import strategies as st

from deepfreeze.data import Resumable
from deepfreeze.data.order import order
from deepfreeze.format.attachment_tree import DATA
from deepfreeze.notices import unheard
from deepfreeze.plan.epochs import Fit, going_on_in_data
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.ranks.world import OneRank
from deepfreeze.training import attempt_lines
from deepfreeze.training.input_position import InputPosition
from tests.support.properties import holds

pytestmark = pytest.mark.tensorflow

SEED = 3


class Sum:
    """A metric with one variable: how many items were trained of the epoch, on all ranks."""

    def __init__(self):
        self.variables, self.value, self.shape = [self], np.int64(0), ()

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.value, dtype)

    def assign(self, value):
        self.value = np.int64(value)


class Rank:
    """One rank of a job, as ``Checkpoint`` and Keras drive its data. ``saved``: the position, and the states of the attachments, in the
    checkpoint that is restored; None: a fresh run."""

    def __init__(self, items, epochs, saved, batch, ranks, last, rank):
        self.data = Resumable((np.arange(items), np.arange(items)), batch, seed=SEED, last=last, rank=rank, ranks=ranks)
        self.position = InputPosition(self.data, loop=False)
        self.sum = Sum()
        self.history = SimpleNamespace(epoch=[], history={})
        model = SimpleNamespace(metrics=[self.sum], history=self.history)
        self.fit = Fit(epochs, len(self.data), begins_at=0, inside=True)
        self.plan = None
        if saved is not None:
            at, states = saved
            self.position.load_states(states)
            further = self.position.epochs_further()
            self.plan = going_on_in_data(at, 0, self.fit, False, at.epoch + further, *self.position.inside)
        self.at = FitPosition(0, self.fit, self.plan)
        world = OneRank()
        world.size = ranks
        self.position.begin_fit(model, self.fit, self.at, False, world, unheard)

    def epoch_begins(self, epoch):
        """Returns what Keras takes of this epoch: the numbers of its batches, and the batches."""
        first = self.plan.batch if self.plan is not None and self.plan.epoch == epoch else 0
        self.sum.assign(0)
        self.at.epoch_begin(epoch)
        assert self.position.put_epoch_back(), "the model has the metrics of the checkpoint"
        return range(first, self.fit.batches), iter(self.data)

    def batch_ends(self, number, items):
        self.sum.assign(self.sum.value + items)
        self.at.train_batch_end(number)

    def epoch_ends(self, epoch):
        self.history.epoch.append(epoch)
        self.history.history.setdefault("items", []).append(float(self.sum.value))

    def saved(self):
        return self.at.at(0, 1), self.position.states()


def items_of(batch):
    """The items of a batch; those with the weight 0 are another rank's."""
    return batch[0][[*map(bool, batch[2])] if len(batch) == 3 else ...].tolist()


class Chain:
    """The jobs of one run. ``trained``: the items of each epoch, in their order; ``most_left``: fewer items than this may be left out of
    an epoch with ``last="drop"``: the global batch of the job that has ended it."""

    def __init__(self, items, epochs, last):
        self.items, self.epochs, self.last = items, epochs, last
        self.trained, self.most_left = defaultdict(list), {}
        self.cut_short = []  # epochs whose end no job has seen, because what was left did not fill a batch
        self.newest = None  # what the checkpoint of the newest step has

    def job(self, batch, ranks, kill=None):
        """Trains until so many batches are trained, or to the end. Returns whether the end was reached, and the ranks."""
        all_ranks = [Rank(self.items, self.epochs, self.newest, batch, ranks, self.last, rank) for rank in range(ranks)]
        plans = [rank.plan for rank in all_ranks]
        assert all(plan == plans[0] for plan in plans)
        plan, left = plans[0], itertools.count(1)
        if plan is not None:
            self._begins(plan, all_ranks, batch * ranks)
        for epoch in range(0 if plan is None else plan.epoch, self.epochs):
            begun = [rank.epoch_begins(epoch) for rank in all_ranks]
            for number in begun[0][0]:
                shares = [items_of(next(batches)) for _, batches in begun]
                step = [item for share in shares for item in share]
                self.trained[epoch] += step
                for rank in all_ranks:
                    rank.batch_ends(number, len(step))
                if number == begun[0][0][-1]:
                    for rank, (_, batches) in zip(all_ranks, begun, strict=True):
                        assert next(batches, None) is None, "Keras takes all batches of the pass"
                        rank.epoch_ends(epoch)
                    self.most_left[epoch] = batch * ranks
                saved = [rank.saved() for rank in all_ranks]
                assert all((at, data[DATA]) == (saved[0][0], saved[0][1][DATA]) for at, data in saved), "on all ranks"
                self.newest = saved[0]
                if next(left) == kill:
                    return False, all_ranks
        return True, all_ranks

    def _begins(self, plan, all_ranks, size):
        if plan.finished:  # no epoch begins
            for rank in all_ranks:
                rank.position.put_epoch_back()
        for epoch in range(plan.epoch):
            if epoch not in self.most_left:
                self.most_left[epoch] = size
                self.cut_short.append(epoch)
        assert plan.begun == (len(self.trained[plan.epoch]) > 0) and plan.exact
        line = attempt_lines.going_on(plan, all_ranks[0].fit)
        assert plan.finished or (f"goes on with batch {plan.batch + 1}" if plan.begun else "comes next") in line


@holds(
    items=st.integers(1, 150),
    jobs=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=12),
    last=st.sampled_from(["weighted", "drop"]),
)
def test_no_item_twice_through_any_chain_of_batches_and_ranks(items, jobs, last):
    """``jobs``: batch, ranks and number of batches until the kill. The last job of the chain trains to the end."""
    chain = Chain(items, 2, last)
    for batch, ranks, kill in [*jobs, (*jobs[-1][:2], None)]:
        ranks = min(ranks, items)
        ended, found = chain.job(min(batch, items // ranks), ranks, kill)
        if ended:
            break
    for epoch in range(chain.epochs):
        whole, trained = order(SEED, epoch, items).tolist(), chain.trained[epoch]
        assert trained == whole[: len(trained)], "each item once, in the order"
        left_out = items - len(trained)
        assert left_out == 0 if last == "weighted" else left_out < chain.most_left[epoch]
    seen = [epoch for epoch in range(chain.epochs) if epoch not in chain.cut_short]
    assert not chain.cut_short or last == "drop"
    for rank in found:
        assert rank.history.epoch == seen
        assert list(rank.history.history["items"]) == [len(chain.trained[epoch]) for epoch in seen]


def test_a_larger_global_batch_goes_on_at_every_step_of_an_epoch():
    """1,003 items: 42 batches of 24, or 21 of 48. So 24 trained items are no whole batch of the second job."""
    for done in range(1, 43):
        chain = Chain(1003, 1, "weighted")
        chain.job(24, 1, done)
        _, ranks = chain.job(24, 2)
        assert chain.trained[0] == order(SEED, 0, 1003).tolist(), f"killed after batch {done}"
        assert [list(rank.history.history["items"]) for rank in ranks] == [[1003]] * 2, "the running means go on"
