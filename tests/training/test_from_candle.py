"""``Checkpoint.from_candle`` in trainings: the checkpoints that CANDLE's parameters ask for are there in the end."""

import warnings

import pytest

import deepfreeze
from tests.support import trainings

pytestmark = pytest.mark.tensorflow
BATCHES = 3  # in each epoch


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


def fit(keras, folder, losses=(), epochs=6, steps=None, **params):
    """A training whose epochs end with these values of the metric ``val_loss``. Parameters without ``ckpt_``. Returns the saved steps."""

    class Validated(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["val_loss"] = losses[epoch]

    params = {"output_dir": str(folder), "epochs": epochs} | {f"ckpt_{name}": value for name, value in params.items()}
    checkpoint = deepfreeze.Checkpoint.from_candle(params, steps_per_epoch=steps, local=None, verbose=0)
    before = [Validated()] if losses else []
    model = trainings.dense(keras)
    model.fit(trainings.data(BATCHES), epochs=epochs, verbose=0, shuffle=False, callbacks=[*before, checkpoint])
    return [info.step for info in deepfreeze.checkpoints(folder / "save")]


def test_interval_skip_and_best_leave_the_epochs_that_candle_leaves(keras, tmp_path):
    """Epoch 1 is skipped although it is the best. Of 2, 4 and 6 the newest two stay, and epoch 3, the best of those that were saved."""
    losses = [0.1, 0.9, 0.5, 0.8, 0.6, 0.7]
    saved = fit(keras, tmp_path, losses, save_interval=2, skip_epochs=1, keep_limit=2)
    assert [step / BATCHES for step in saved] == [3, 4, 6]


def test_epochs_of_a_given_number_of_steps_are_those_of_the_parameters(keras, tmp_path):
    """An epoch of the parameters is two steps here, and one of ``fit`` has three."""
    assert fit(keras, tmp_path, epochs=4, steps=2, save_best=False, save_interval=2, skip_epochs=2) == [8, 12]


def test_required_finds_the_checkpoint_of_an_earlier_job_or_fails(keras, tmp_path):
    with pytest.raises(deepfreeze.NotFoundError):
        fit(keras, tmp_path, epochs=1, save_best=False, restart_mode="required")
    assert fit(keras, tmp_path, epochs=1, save_best=False) == [3]
    assert fit(keras, tmp_path, epochs=1, save_best=False, restart_mode="required") == [3, 6], "it went on"


def test_nothing_is_saved_with_an_interval_of_0(keras, tmp_path):
    assert fit(keras, tmp_path, epochs=1, save_interval=0) == []


def test_one_warning_names_all_parameters_without_a_counterpart(keras, tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(keras, tmp_path, epochs=1, save_interval=0, timestamp_last="now", keep_mode="exponential")
    (text,) = (str(one.message) for one in caught if one.category is deepfreeze.CheckpointWarning)
    assert 'has no counterpart: ckpt_timestamp_last, ckpt_keep_mode="exponential".' in text


def test_options_given_by_name_take_the_place_of_parameters(tmp_path):
    run = tmp_path / "mine"
    with pytest.raises(deepfreeze.OptionError, match="resume=: expected one of"):
        deepfreeze.Checkpoint.from_candle({"ckpt_restart_mode": "off"}, run, resume="always")
    with pytest.raises(deepfreeze.OptionError, match="keeep="):
        deepfreeze.Checkpoint.from_candle({}, run, keeep=1)
    with pytest.raises(deepfreeze.OptionError, match="run=: expected a directory"):
        deepfreeze.Checkpoint.from_candle({"ckpt_directory": "there"}, "")
