"""How often, and how much of, the ranks' replicas are compared. What comes of it is tested in tests/horovod/test_agreement.py."""

import keras
import numpy as np
import pytest

import deepfreeze
from deepfreeze.freeze.replicas import ReplicaChecksums
from deepfreeze.freeze.saver import Saver
from deepfreeze.notices import unheard
from deepfreeze.plan.comparisons import WHOLE, Part
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.world import OneRank
from deepfreeze.training.replica_checks import ReplicaChecks
from tests.support import trainings
from veloc_bindings import DIVERGED, EXTERNAL, IO, LOCAL, OK, Report

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(("options", "then"), [({}, [Part(0, 64), Part(1, 64)]), ({"parts": 0}, [None, None])])
def test_replicas_are_compared_whole_at_two_captures_and_then_in_parts(tmp_path, monkeypatch, options, then):
    asked, save = [], Saver.save

    def noted(self, step, captured, compare=None, manifest=None):
        asked.append(compare)
        save(self, step, captured, compare, manifest)

    monkeypatch.setattr(Saver, "save", noted)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, replicas=deepfreeze.Replicas(**options))
    trainings.dense(keras).fit(trainings.data(4), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert asked == [WHOLE, WHOLE, *then]


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


def test_while_a_difference_is_known_the_ranks_compare_everything():
    agreement = Agreement(OneRank(), hears_sigterm=False, notify=unheard)
    checks = ReplicaChecks(4, agreement)
    agreement.seal()
    agreement.connect(None)
    told = [
        ([], WHOLE),
        ([report(1, -1)], WHOLE),
        ([report(2, -1)], Part(0, 4)),
        ([report(3, 5)], WHOLE),
        # What has failed, or is not committed yet, says nothing.
        ([report(4, -1, level=LOCAL), report(5, -1, code=IO)], WHOLE),
        ([report(6, 0, code=DIVERGED)], WHOLE),
        ([report(7, 2), report(8, -1)], Part(1, 4)),
    ]
    for reports, wanted in told:
        checks.enter(reports)
        agreement.settle(soon=True)
        assert checks.next() == wanted
    agreement.close()
