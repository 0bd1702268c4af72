"""Adapters of Keras's callbacks: a program may give one callback to several ``Checkpoint``s, one after the other."""

from __future__ import annotations

import numpy as np
import pytest

from deepfreeze.state.attachments import Attachments
from tests.support import kerases

pytestmark = pytest.mark.tensorflow


@kerases.one_will_do
def test_a_schedule_that_two_checkpoints_share_gets_the_true_rates(keras):
    """A rate of the first one's checkpoint replaces that of the interrupted epoch, once, and none of a later training."""
    seen = []
    callback = keras.callbacks.LearningRateScheduler(lambda epoch, rate: seen.append((epoch, rate)) or rate)
    first, second = (Attachments({"schedule": callback}, None) for _ in range(2))
    first.callbacks.fit_is_prepared()
    callback.schedule(1, 0.5)
    data = first.take(9)
    for both in (False, True):
        first.callbacks.fit_is_prepared()
        if both:
            second.callbacks.fit_is_prepared()
        (thing,) = first._objects.values()
        thing.load_state_dict({"before": [1, 0.5]})
        first.callbacks.model_is_restored(None)
        second.callbacks.model_is_restored(None)  # from no checkpoint
        callback.schedule(1, 0.25)
        callback.schedule(1, 0.125)
        assert seen[-2:] == [(1, 0.5), (1, 0.125)]
    assert second.take(9) == first.take(9) != data, "either one knows the rates"
    first.callbacks.model_is_restored(None)  # and its fit was interrupted before an epoch began
    third = Attachments({"schedule": callback}, None)
    third.callbacks.fit_is_prepared()
    callback.schedule(1, 0.75)
    assert seen[-1] == (1, 0.75)


@kerases.one_will_do
def test_best_weights_that_are_not_wanted_are_forgotten(keras):
    callback = keras.callbacks.EarlyStopping("loss", restore_best_weights=True)
    callbacks = Attachments({"stop": callback}, None).callbacks
    (one,) = callbacks.stopping.values()
    state = {"best_step": 6, "stopped_epoch": 3, "wait": 5}
    one.load_state_dict(state)
    callbacks.forget()
    assert one.weights_of is None and not one.has_stopped
    one.load_state_dict(state)
    one.take_weights([np.zeros(2)])
    callbacks.forget()
    callback.best_weights = None
    callbacks.recall()
    assert callback.best_weights is None
