"""Another model takes up a run in which this process has trained one to its end, as with one path for all folds of a cross-validation."""

from __future__ import annotations

import warnings

import pytest

import deepfreeze
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow


def fit(keras, run, model=None, steps=4, checkpoint=None, **options):
    """Trains, and returns the model and DeepFreeze's warnings."""
    model = trainings.dense(keras) if model is None else model
    checkpoint = checkpoint or deepfreeze.Checkpoint(run, every=2, verbose=0, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=[checkpoint])
    return model, [str(one.message) for one in caught if issubclass(one.category, deepfreeze.CheckpointWarning)]


@kerases.one_will_do
def test_the_second_fold_in_one_run_is_told_both_ways_out_once(keras, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, first = fit(keras, "runs/folds")
    _, second = fit(keras, "runs/folds")
    _, third = fit(keras, "runs/folds")
    assert (first, third) == ([], [])
    (message,) = second
    assert message.startswith("this model goes on from step 4 of runs/folds, to which this process has trained another")
    assert 'Checkpoint(f"runs/folds-{fold}")' in message and 'resume="off"' in message


@pytest.mark.full
@kerases.one_will_do
def test_one_callback_for_all_folds_is_told_too_and_so_is_a_loop(keras, tmp_path):
    checkpoint = deepfreeze.Checkpoint(tmp_path / "fits", every=2, verbose=0)
    assert fit(keras, None, checkpoint=checkpoint)[1] == []
    assert len(fit(keras, None, checkpoint=checkpoint)[1]) == 1
    for told in (0, 1):
        model = trainings.dense(keras)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with deepfreeze.capture(model.optimizer, model, tmp_path / "loop", every=1, verbose=0) as loop:
                for x, y in trainings.data(2):
                    model.train_on_batch(x, y)
                    loop.step()
        assert sum("this model goes on" in str(one.message) for one in caught) == told


@pytest.mark.full
@kerases.one_will_do
def test_who_goes_on_with_the_same_model_or_begins_anew_is_not_told(keras, tmp_path):
    """The same model with another callback; the ways out themselves; and a run that an exception has left, as a cell that is run again."""
    model, _ = fit(keras, tmp_path / "same")
    assert fit(keras, tmp_path / "same", model)[1] == []
    assert fit(keras, tmp_path / "same", resume="off")[1] == []
    assert fit(keras, tmp_path / "same-2")[1] == []

    def fail(batch, logs):
        if batch == 2:
            raise RuntimeError("user's own")

    broken = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "broken", every=2, verbose=0, wait_for="external")
    with pytest.raises(RuntimeError):
        trainings.dense(keras).fit(trainings.data(4), verbose=0, shuffle=False, callbacks=[checkpoint, broken])
    checkpoint.close()
    assert fit(keras, tmp_path / "broken")[1] == []
