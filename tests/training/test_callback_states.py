"""Keras's own callbacks in ``extra=``: a job that was killed and started again trains the epochs, has the learning rates, and ends where
the uninterrupted one does.

A ``fit`` that an exception ends is, for the next ``Checkpoint``, as one whose process was killed.
"""

import os
import signal
import types

import numpy as np
import pytest

import deepfreeze
from deepfreeze.errors import OptionError
from deepfreeze.state.attachments import Attachments
from deepfreeze.store import Best, Latest
from tests.support import jobs, kerases, later_models, trainings

pytestmark = pytest.mark.tensorflow

BATCHES = 6  # in each epoch


class Killed(Exception):
    """In place of a kill."""


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    """Each fit of a test is the first one of its process."""
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})


class Program:
    """A program with one ``fit``, in a folder, that is started anew by each call."""

    def __init__(self, keras, folder, make, *, first=False, keep=None, every="epoch", make_model=None, epochs=30):
        """``make``: makes the callbacks, by name; ``first``: Checkpoint comes before them in the list."""
        folder.mkdir(exist_ok=True)
        self.keras, self.folder, self.make, self.first, self.epochs = keras, folder, make, first, epochs
        self.make_model = make_model or (lambda: trainings.dense(keras, keras.optimizers.SGD(0.5)))
        self.keep, self.every = keep or Latest(1) | Best("val_loss", "min"), every
        self.rates = {}  # by epoch, of those that have ended

    def __call__(self, kill=None, how=Killed, monkeypatch=None):
        """Trains until the step ``kill``. Returns the number of epochs that were begun."""
        if monkeypatch:
            monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})
        begun, program = [], self

        class Beside(self.keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                begun.append(epoch)

            def on_train_batch_end(self, batch, logs=None):
                if trainings.count(self.model.optimizer) == kill:
                    if how is Killed:
                        raise Killed
                    os.kill(os.getpid(), how)

            def on_epoch_end(self, epoch, logs=None):
                program.rates[epoch] = float(np.asarray(self.model.optimizer.learning_rate))

        self.model, self.callbacks = self.make_model(), self.make()
        checkpoint = deepfreeze.Checkpoint(
            self.folder / "run", self.every, keep=self.keep, extra=self.callbacks, verbose=0
        )
        others = list(self.callbacks.values())
        callbacks = [checkpoint, *others, Beside()] if self.first else [*others, Beside(), checkpoint]
        data = {"x": trainings.data(BATCHES), "validation_data": trainings.data(BATCHES + 2).skip(BATCHES)}
        try:
            self.model.fit(**data, epochs=self.epochs, verbose=0, shuffle=False, callbacks=callbacks)
        except Killed:
            checkpoint.close()
        return len(begun)

    def weights(self):
        return [np.asarray(value) for value in self.model.get_weights()]


def usual(keras, folder):
    return {
        "slower": keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=2, cooldown=1),
        "log": keras.callbacks.CSVLogger(folder / "log.csv", separator=";"),
        "stop": keras.callbacks.EarlyStopping("val_loss", patience=6, restore_best_weights=True),
    }


def logged(folder):
    """The columns of the log, but for DeepFreeze's own, which are times."""
    rows = [line.split(";") for line in (folder / "log.csv").read_text().splitlines()]
    return [[value for name, value in zip(rows[0], row, strict=True) if "deepfreeze" not in name] for row in rows]


@pytest.mark.parametrize("first", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_killed_fit_goes_on_with_its_callbacks_as_if_never_killed(keras, first, tmp_path, monkeypatch):
    """The log, the learning rates, the early stop and the best weights; with Checkpoint before and behind the callbacks."""
    whole, killed = (
        Program(keras, folder, lambda folder=folder: usual(keras, folder), first=first)
        for folder in (tmp_path / "whole", tmp_path / "killed")
    )
    epochs = whole(monkeypatch=monkeypatch)
    assert 6 < epochs < 30 and len(set(whole.rates.values())) > 1, "they have something to do"
    last = BATCHES * epochs
    for kill in (BATCHES + 1, BATCHES * 4 + 2, last - 2):
        killed(kill, monkeypatch=monkeypatch)
    assert killed(monkeypatch=monkeypatch) == 1
    assert killed.rates == whole.rates and logged(killed.folder) == logged(whole.folder)
    for name in ("best", "best_epoch", "stopped_epoch", "wait"):
        assert getattr(killed.callbacks["stop"], name) == getattr(whole.callbacks["stop"], name)
    assert all(map(np.array_equal, killed.weights(), whole.weights()))
    assert killed(monkeypatch=monkeypatch) == 0, "EarlyStopping has ended it"
    assert all(map(np.array_equal, killed.weights(), whole.weights())), "the best ones again"
    assert logged(killed.folder) == logged(whole.folder)


@pytest.mark.full
def test_a_model_that_is_built_late_goes_on_with_its_callbacks_too(keras, tmp_path, monkeypatch):
    def make():
        keras.utils.set_random_seed(1)
        model = later_models.sequential(keras)
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        return model

    whole, killed = (
        Program(keras, folder, lambda folder=folder: usual(keras, folder), make_model=make)
        for folder in (tmp_path / "whole", tmp_path / "killed")
    )
    epochs = whole(monkeypatch=monkeypatch)
    assert 6 < epochs < 30 and not np.isnan(whole.callbacks["stop"].best)
    killed(BATCHES * (epochs - 2) + 1, monkeypatch=monkeypatch)
    assert killed(monkeypatch=monkeypatch) == 2
    assert killed.rates == whole.rates and logged(killed.folder) == logged(whole.folder)
    killed(monkeypatch=monkeypatch)
    assert all(map(np.array_equal, killed.weights(), whole.weights()))
    assert logged(killed.folder) == logged(whole.folder)


def test_the_best_checkpoint_survives_restarts_and_retention(keras, tmp_path, monkeypatch):
    """EarlyStopping's best weights are those of an epoch long before the last kill, in a run that keeps two checkpoints. Of equal epochs
    the first is the best."""

    seen = {}

    class Stopping(keras.callbacks.EarlyStopping):
        """Has figures that are best in the third epoch, and as good in the next two."""

        def on_epoch_end(self, epoch, logs=None):
            logs["score"] = [0.1, 0.2, 0.7, 0.7, 0.7, 0.5, 0.4, 0.3][epoch]
            seen[epoch] = self.model.get_weights()
            super().on_epoch_end(epoch, logs)

    def make():
        return {"stop": Stopping("score", mode="max", patience=9, restore_best_weights=True)}

    program = Program(keras, tmp_path, make, keep=Latest(1) | Best("score", "max"), epochs=8)
    for kill in (BATCHES * 4 + 1, BATCHES * 6 + 1, None):
        program(kill, monkeypatch=monkeypatch)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [BATCHES * 3, BATCHES * 8]
    assert program.callbacks["stop"].best_epoch == 2
    assert all(map(np.array_equal, program.callbacks["stop"].best_weights, seen[2]))
    if not kerases.KERAS_IS_2:  # Keras 2.15 gives them to the model only if it has stopped early
        assert all(map(np.array_equal, program.weights(), seen[2]))


@pytest.mark.full
def test_the_best_checkpoint_stays_though_its_job_died_at_once(keras, tmp_path, monkeypatch):
    """The checkpoint of an epoch's last step has the epoch's metrics in its manifest: whoever commits it needs no other source."""
    scores = [0.1, 0.2, 0.7, 0.5, 0.4]

    class Scoring(keras.callbacks.ReduceLROnPlateau):
        def on_epoch_end(self, epoch, logs=None):
            logs["score"] = scores[epoch]

    program = Program(
        keras, tmp_path, lambda: {"score": Scoring("score")}, keep=Latest(1) | Best("score", "max"), epochs=5
    )
    program(BATCHES * 2 + 1, monkeypatch=monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr("deepfreeze.store.marks.Marks.retain", lambda *args: ())  # as if it was killed before
        program(BATCHES * 3 + 1, monkeypatch=patch)
    program(monkeypatch=monkeypatch)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [BATCHES * 3, BATCHES * 5]


def test_an_epoch_without_a_checkpoint_at_its_end_is_told_of(keras, tmp_path, monkeypatch, caplog):
    """Best weights are taken from the nearest checkpoint then."""
    program = Program(keras, tmp_path, lambda: {"stop": usual(keras, tmp_path)["stop"]}, every=4)
    program(BATCHES + 3, monkeypatch=monkeypatch)
    program(BATCHES * 2, monkeypatch=monkeypatch)
    assert (
        "extra['stop']: the run has no checkpoint of step 6, at which the best epoch ended: EarlyStopping gets"
        in caplog.text
    )
    assert program.callbacks["stop"].best_weights is not None


@pytest.mark.full
def test_a_job_told_to_stop_at_an_epochs_last_batch_says_what_was_missed(keras, tmp_path, monkeypatch, caplog):
    program = Program(keras, tmp_path, lambda: usual(keras, tmp_path))
    program(BATCHES * 2, how=signal.SIGTERM, monkeypatch=monkeypatch)
    assert "have not seen" not in caplog.text
    program(BATCHES * 3 + 1, monkeypatch=monkeypatch)
    assert "step 12 was saved at the last batch of an epoch, and its job ended before the epoch did" in caplog.text
    assert "so their states lack epoch 2: extra['slower'], extra['log'], extra['stop']" in caplog.text
    assert [row[0] for row in logged(tmp_path)] == ["epoch", "0", "1", "2"], "the epoch was logged all the same"
    caplog.clear()
    program(BATCHES * 4 + 1, monkeypatch=monkeypatch)
    assert "have not seen" not in caplog.text


@pytest.mark.full
def test_the_second_fit_of_a_program_begins_with_new_callbacks(keras, tmp_path):
    """As Keras sets them back in each fit; and one log for each fit."""
    callbacks = usual(keras, tmp_path)
    checkpoint = deepfreeze.Checkpoint(
        tmp_path / "run", "epoch", keep=Best("val_loss", "min"), extra=callbacks, verbose=0
    )
    data = {"x": trainings.data(4), "validation_data": trainings.data(2), "verbose": 0, "shuffle": False}
    model = trainings.dense(keras)
    logs = []
    for _ in range(2):
        model.fit(**data, epochs=2, callbacks=[*callbacks.values(), checkpoint])
        logs.append((tmp_path / "log.csv").read_text())
        assert not callbacks["log"].append
    assert [len(text.splitlines()) for text in logs] == [3, 3] and logs[0] != logs[1]


@pytest.mark.full
@kerases.one_will_do
def test_a_rate_that_follows_from_the_one_before_is_not_lowered_twice(keras, tmp_path, monkeypatch):
    """The epoch that was interrupted begins again."""

    def make():
        return {"schedule": keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)}

    program = Program(keras, tmp_path, make, every=5, keep=2, epochs=4)
    program(BATCHES + 5, monkeypatch=monkeypatch)  # the newest checkpoint is in the middle of the second epoch
    program(monkeypatch=monkeypatch)
    assert program.rates == {0: 0.25, 1: 0.125, 2: 0.0625, 3: 0.03125}


@pytest.mark.full
def test_a_model_checkpoint_overwrites_no_better_file_after_a_restart(keras, tmp_path, monkeypatch):
    path = tmp_path / "best.weights.h5"

    class Saving(keras.callbacks.ModelCheckpoint):
        """Has figures that are best in the second epoch."""

        def on_epoch_end(self, epoch, logs=None):
            logs["score"] = [2.0, 1.0, 1.5][epoch]
            super().on_epoch_end(epoch, logs)

    def make():
        return {"best": Saving(str(path), monitor="score", mode="min", save_best_only=True, save_weights_only=True)}

    program = Program(keras, tmp_path, make, keep=2, epochs=3)
    program(BATCHES * 2 + 1, monkeypatch=monkeypatch)
    written = path.stat().st_mtime_ns
    assert program(monkeypatch=monkeypatch) == 1
    assert program.callbacks["best"].best == 1.0 and path.stat().st_mtime_ns == written


@pytest.mark.full
def test_a_model_checkpoint_goes_on_counting_batches(keras, tmp_path, monkeypatch):
    def make():
        name = "{epoch}-{batch}.weights.h5"
        return {"some": keras.callbacks.ModelCheckpoint(str(tmp_path / name), save_weights_only=True, save_freq=4)}

    program = Program(keras, tmp_path, make, keep=2, epochs=3)
    program(BATCHES + 1, monkeypatch=monkeypatch)
    program(monkeypatch=monkeypatch)
    assert sorted(path.name for path in tmp_path.glob("*.h5")) == [
        f"{name}.weights.h5" for name in ("1-4", "2-2", "2-6", "3-4")
    ]


def test_plots_of_batches_go_on(keras, tmp_path, monkeypatch):
    numbers = []

    class Plots(keras.callbacks.TensorBoard):
        """Draws nothing: that would need the package tensorboard."""

        def _log_epoch_metrics(self, epoch, logs):
            counter = getattr(self, "_train_step", None)
            numbers.append(self._global_train_batch if counter is None else int(counter.numpy()))

        def on_train_batch_end(self, batch, logs=None):
            pass

        def on_test_end(self, logs=None):
            self._pop_writer()

    program = Program(
        keras, tmp_path, lambda: {"plots": Plots(str(tmp_path / "plots"), write_graph=False)}, keep=2, epochs=4
    )
    program(BATCHES * 2 + 1, monkeypatch=monkeypatch)
    program(monkeypatch=monkeypatch)
    assert numbers == [BATCHES * number for number in (1, 2, 3, 4)]


@kerases.one_will_do
def test_weights_that_no_rule_keeps_are_refused_with_the_line_to_write(keras, tmp_path):
    for monitor, mode in (("val_loss", "min"), ("val_accuracy", "max")):
        stop = keras.callbacks.EarlyStopping(monitor, restore_best_weights=True)
        for keep in (2, Best("loss", "min")):
            with pytest.raises(OptionError, match="after a restart the best weights would be lost") as caught:
                deepfreeze.Checkpoint(tmp_path, keep=keep, extra={"stop": stop})
            assert f'deepfreeze.store.Best("{monitor}", "{mode}")' in str(caught.value)
        deepfreeze.Checkpoint(tmp_path, keep=Latest(2) | Best(monitor, mode), extra={"stop": stop})
        own = types.SimpleNamespace(wants=lambda history: {}, metrics=(monitor,))
        deepfreeze.Checkpoint(tmp_path, keep=own, extra={"stop": stop})
    lowest = keras.callbacks.EarlyStopping("score", mode="min", restore_best_weights=True)
    with pytest.raises(OptionError):
        deepfreeze.Checkpoint(tmp_path, keep=Best("score", "max"), extra={"stop": lowest})
    deepfreeze.Checkpoint(tmp_path, extra={"stop": keras.callbacks.EarlyStopping()})


def test_other_callbacks_are_told_the_two_methods(keras, tmp_path):
    class Own(keras.callbacks.RemoteMonitor):
        """Has no state that is known."""

    with pytest.raises(OptionError, match="inherits from Own these two methods") as caught:
        deepfreeze.Checkpoint(tmp_path, extra={"remote": Own()})
    assert "state_dict() and load_state_dict()" in str(caught.value) and "ReduceLROnPlateau" in str(caught.value)
    remote = keras.callbacks.CSVLogger("gs://bucket/log.csv")
    with pytest.raises(OptionError, match="can be cut back"):
        deepfreeze.Checkpoint(tmp_path, extra={"log": remote})


@kerases.one_will_do
def test_a_callback_with_the_two_methods_is_saved_by_these(keras):
    class Own(keras.callbacks.EarlyStopping):
        """Knows better."""

        def state_dict(self):
            return {"own": 1}

        def load_state_dict(self, state):
            self.own = state["own"]

    attachments = Attachments({"own": Own()}, None)
    assert not attachments.callbacks.stopping and attachments.of_epochs == ["own"]


@kerases.one_will_do
def test_a_loop_gives_callbacks_their_states_at_once(keras, tmp_path):
    def loop(steps):
        model = trainings.dense(keras)
        callbacks = usual(keras, tmp_path)
        callbacks["log"].append = True
        calls = keras.callbacks.CallbackList(list(callbacks.values()), model=model)
        calls.on_train_begin()
        keep = Best("val_loss", "min")
        data = next(iter(trainings.data(1)))
        with deepfreeze.capture(model.optimizer, model, tmp_path / "run", 2, keep=keep, extra=callbacks) as checkpoint:
            known = callbacks["stop"].wait, callbacks["slower"].wait, callbacks["stop"].best_weights
            for step in range(checkpoint.start, steps):
                model.train_on_batch(*data)
                if step % 2 == 0:
                    calls.on_epoch_end(step // 2, {"val_loss": 1.0 + step})
                checkpoint.step()
                checkpoint.log(step + 1, val_loss=1.0 + step)
        return known

    assert loop(4) == (0, 0, None)
    stop, slower, weights = loop(8)
    assert (stop, slower) == (1, 1) and weights is not None
    rows = (tmp_path / "log.csv").read_text().splitlines()
    assert [row.split(";")[0] for row in rows] == ["epoch", "0", "1", "2", "3"]


def told(*arguments, **options):
    """What a job prints: a list of the epochs that ended, and the last line."""
    with jobs.job("callbacks.py", *arguments, **options) as job:
        job.wait()
        lines = job.output().splitlines()
    return [line for line in lines if line.startswith("epoch ")], [
        line for line in lines if line.startswith("stopped ")
    ]


@pytest.mark.full
@pytest.mark.ranks
@pytest.mark.parametrize("api", kerases.NAMES)
@pytest.mark.parametrize("ranks", [0, 2])
def test_a_killed_job_has_the_epochs_rates_and_log_of_an_uninterrupted_one(api, ranks, tmp_path):
    """Killed in the middle of an epoch, while it validates, and again in the middle of an epoch."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    options = {"ranks": ranks, "TF_USE_LEGACY_KERAS": "1" if api == "tf_keras" else "0"}
    epochs, ends = told(api, whole, 0, "batch", **options)
    assert len({line.split()[-1] for line in epochs}) > 1 and len(ends) == max(ranks, 1)
    found = []
    for kill, where in ((12, "batch"), (20, "test"), (37, "batch"), (0, "batch")):
        epochs_here, ends_here = told(api, killed, kill, where, **options)
        found += epochs_here
    assert sorted(found) == sorted(epochs) and ends_here == ends
    assert logged(killed) == logged(whole)


@pytest.mark.full
@pytest.mark.ranks
@pytest.mark.parametrize(("api", "ranks"), [*((name, 0) for name in kerases.NAMES), ("keras", 2)])
def test_callbacks_of_a_job_killed_inside_an_epoch_go_on_with_its_data(api, ranks, tmp_path):
    """Killed inside of an epoch, while it validates, and inside of another epoch. The job ends with the states, the history and the log of
    an uninterrupted one.
    """
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    options = {"ranks": ranks, "TF_USE_LEGACY_KERAS": "1" if api == "tf_keras" else "0"}
    epochs, ends = told(api, whole, 0, "batch", "data", **options)
    assert len({line.split()[-1] for line in epochs}) > 1 and len(ends) == 2 * max(ranks, 1)
    assert 40 < 5 * len(epochs) // max(ranks, 1) < 100, "stopped early, after all kills"
    found = []
    for kill, where in ((12, "batch"), (20, "test"), (38, "batch"), (0, "batch")):
        epochs_here, ends_here = told(api, killed, kill, where, "data", **options)
        found += epochs_here
    assert sorted(found) == sorted(epochs) and ends_here == ends
    assert logged(killed) == logged(whole)
