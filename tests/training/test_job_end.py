"""Before the scheduler ends a job, a last checkpoint is committed and training ends."""

import time

import pytest

import deepfreeze
from tests.support import trainings

pytestmark = pytest.mark.tensorflow


def test_fit_ends_with_a_checkpoint_when_the_end_is_near(keras, tmp_path):
    """It comes while the first step is traced, so that step is the last one. The next job goes on from there."""
    model = trainings.dense(keras)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=100, ends_at=time.time() + 0.05)
    model.fit(trainings.data(9), verbose=0, shuffle=False, epochs=2, callbacks=[checkpoint])
    assert trainings.count(model.optimizer) == 1 == deepfreeze.latest(tmp_path / "run").step
    assert checkpoint.stats.stopped == "ends_at"
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=100)
    model = trainings.dense(keras)
    model.fit(trainings.data(9), verbose=0, shuffle=False, epochs=2, callbacks=[checkpoint])
    assert checkpoint.stats.stopped is None and trainings.count(model.optimizer) == 18


@pytest.mark.full
@pytest.mark.timing
def test_a_real_end_comes_after_the_last_commit(keras, tmp_path, monkeypatch):
    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            time.sleep(0.05)

    # A busy machine may take longer than 9 s to trace the first step, or stand still for longer than the second that DeepFreeze keeps free.
    for seconds in (9, 30, 90):
        run, ends_at = tmp_path / str(seconds), time.time() + seconds
        monkeypatch.setenv("DEEPFREEZE_ENDS_AT", str(ends_at))
        model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(run, every=5)
        model.fit(trainings.data(4000), verbose=0, shuffle=False, callbacks=[Slow(), checkpoint])
        left = ends_at - time.time()
        assert checkpoint.stats.stopped == "ends_at" and deepfreeze.latest(run).step == trainings.count(model.optimizer)
        if trainings.count(model.optimizer) > 1 and left > 0:
            break
    assert 0 < left < seconds - 1 and trainings.count(model.optimizer) < 4000
