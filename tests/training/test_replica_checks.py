"""How often, and how much of, the ranks' replicas are compared. What comes of it is tested in tests/horovod/test_agreement.py."""

import keras
import numpy as np
import pytest

import deepfreeze
from deepfreeze.engine.backend import Opening
from deepfreeze.freeze import saver
from deepfreeze.freeze.replicas import ReplicaChecksums
from deepfreeze.freeze.saver import Saver
from deepfreeze.notices import unheard
from deepfreeze.plan.comparisons import WHOLE, Compared
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.world import OneRank
from deepfreeze.training.replica_checks import ReplicaChecks
from tests.support import trainings
from veloc_bindings import DIVERGED, EXTERNAL, IO, LOCAL, OK, SUPERSEDED, Report

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def asked(monkeypatch):
    """What is compared at each checkpoint."""
    asked, save = [], Saver.save

    def noted(self, step, captured, compare=None, *given):
        asked.append(compare)
        save(self, step, captured, compare, *given)

    monkeypatch.setattr(Saver, "save", noted)
    return asked


@pytest.mark.parametrize(("options", "then"), [({}, [Compared(0, 64), Compared(1, 64)]), ({"parts": 0}, [None, None])])
def test_replicas_are_compared_whole_at_two_captures_and_then_in_parts(tmp_path, asked, options, then):
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, replicas=deepfreeze.Replicas(**options))
    trainings.dense(keras).fit(trainings.data(4), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert asked == [WHOLE, WHOLE, *then]


def fit(model, checkpoint, steps):
    model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=[checkpoint])


def test_several_fits_are_one_training_for_the_comparison(tmp_path, monkeypatch, asked):
    """Two whole comparisons in all, and from the third ``fit`` on the engine only warns of a difference."""
    modes = []
    monkeypatch.setattr(saver, "Opening", lambda **given: modes.append(given["on_divergence"]) or Opening(**given))
    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run", every=1)
    for _ in range(4):
        fit(model, checkpoint, 1)
    assert asked == [WHOLE, WHOLE, Compared(0, 64), Compared(1, 64)]
    assert modes == ["auto", "auto", "warn", "warn"]


CHANGES = {
    "nothing": lambda model, checkpoint, run: None,
    "another optimizer": lambda model, checkpoint, run: (
        model.compile("adam", "mse", jit_compile=False),
        deepfreeze.restore(model, run),
    ),
    "an older step": lambda model, checkpoint, run: deepfreeze.restore(model, run, step=1),
    "a step without a checkpoint": lambda model, checkpoint, run: model.fit(trainings.data(1), verbose=0),
    "a closed checkpoint": lambda model, checkpoint, run: checkpoint.close(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_may_make_the_ranks_differ_begins_the_comparison_anew(tmp_path, asked, change):
    model, run = trainings.dense(keras), tmp_path / "run"
    checkpoint = deepfreeze.Checkpoint(run, every=1, keep=10)
    fit(model, checkpoint, 2)
    CHANGES[change](model, checkpoint, run)
    fit(model, checkpoint, 1)
    assert asked == [WHOLE, WHOLE, Compared(0, 64) if change == "nothing" else WHOLE]


def test_the_last_checkpoint_compares_the_values_that_it_saves(tmp_path, monkeypatch):
    """Another callback changes the weights at the end of the last epoch."""
    compared, take = [], ReplicaChecksums.take
    model = trainings.dense(keras)

    def noted(self, part):
        compared.append(model.get_weights())
        return take(self, part)

    class Double(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.set_weights([2 * weight for weight in self.model.get_weights()])

    monkeypatch.setattr(ReplicaChecksums, "take", noted)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)
    model.fit(trainings.data(3), verbose=0, shuffle=False, callbacks=[checkpoint, Double()])
    saved = trainings.dense(keras)
    assert deepfreeze.restore(saved, tmp_path / "run").step == 3
    for mine, theirs in zip(saved.get_weights(), compared[-1], strict=True):
        assert np.array_equal(mine, theirs)


def report(step, diverged, code=OK, level=EXTERNAL):
    return Report(step, level, code, True, diverged, 1, 0.1, 0.1, 0.1, "")


class Captures:
    """Stands for the captures of a model."""


class OfTwo(OneRank):
    """A rank of two, of which the other one gives ``other``."""

    def __init__(self, other):
        self.other = other

    def gather(self, value):
        return [value, self.other]


ALIKE = (True, True)


@pytest.mark.parametrize(
    ("reports", "other", "followed"),
    [
        ([report(1, -1), report(2, -1), report(3, -1)], ALIKE, True),
        ([report(1, -1), report(2, 0), report(3, -1)], ALIKE, True),  # the ranks have come to agree
        ([report(1, -1), report(2, -1), report(3, 0)], ALIKE, False),
        ([report(1, -1), report(2, -1), report(3, -1, level=LOCAL)], ALIKE, False),
        ([report(1, -1), report(2, -1), report(3, -1, code=IO)], ALIKE, False),
        ([report(1, -1), report(2, -1), report(-1, -1)], ALIKE, False),  # a notice is no checkpoint
        ([report(1, -1), report(2, -1), report(3, -1)], (False, False), False),
        ([report(1, -1), report(3, -1), *2 * [report(2, -1, code=SUPERSEDED)]], ALIKE, True),
        ([report(3, 5), report(1, -1), report(2, -1)], ALIKE, False),  # committed in another order
    ],
)
def test_comparisons_go_on_where_all_ranks_have_ended_alike(reports, other, followed):
    def checks():
        return ReplicaChecks(4, Agreement(OneRank(), last=(), notify=unheard))

    before, after, captures = checks(), checks(), Captures()
    for step in (1, 2, 3):
        before.next(step)
    before.enter(reports)
    before.end(captures, 3)
    after.follow(before, OfTwo(other), captures, 3)
    assert after.next(4) == (Compared(1, 4) if followed else WHOLE)


def test_while_a_difference_is_known_the_ranks_compare_everything():
    agreement = Agreement(OneRank(), last=(), notify=unheard)
    checks = ReplicaChecks(4, agreement)
    agreement.seal()
    agreement.connect(None)
    told = [
        ([], WHOLE),
        ([report(1, -1)], WHOLE),
        ([report(2, -1)], Compared(0, 4)),
        ([report(3, 5)], WHOLE),
        # What has failed, or is not committed yet, says nothing.
        ([report(4, -1, level=LOCAL), report(5, -1, code=IO)], WHOLE),
        ([report(6, 0, code=DIVERGED)], WHOLE),
        ([report(7, 2), report(8, -1)], Compared(1, 4)),
    ]
    for reports, wanted in told:
        checks.enter(reports)
        agreement.settle(soon=True)
        assert checks.next(1) == wanted
    agreement.close()
