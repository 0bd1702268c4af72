"""A ``fit`` that was killed goes on with the epoch in which it was, and trains as many batches in all as it was asked for.

A ``fit`` that an exception ends is, for the next ``Checkpoint``, as one whose process was killed.
"""

import os
import signal

import numpy as np
import pytest

import deepfreeze
from deepfreeze.format.position import Position
from deepfreeze.state import private_api
from deepfreeze.state.keras_objects import optimizer_variables
from deepfreeze.store.run import Run
from deepfreeze.training import fit_beginning
from tests.support import jobs, kerases, later_models, trainings

pytestmark = pytest.mark.tensorflow

BATCHES = 6  # in each epoch
EPOCHS = 4


class Killed(Exception):
    """In place of a kill."""


def program(keras, run, kill=None, *, checkpoint=None, data=None, model=None, **options):
    """A program with one ``fit``, that dies at the end of the step ``kill``. Returns the numbers of the epochs that it began, and its
    model. Options that are not those of ``fit`` are Checkpoint's."""
    began = []

    class Beside(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            began.append(epoch)

        def on_train_batch_end(self, batch, logs=None):
            if trainings.count(self.model.optimizer) == kill:
                raise Killed

    fitting = {name: options.pop(name) for name in ("epochs", "initial_epoch", "steps_per_epoch") if name in options}
    model = model or trainings.dense(keras, keras.optimizers.SGD(0.01))
    checkpoint = checkpoint or deepfreeze.Checkpoint(run, **{"every": 2, "keep": 100, **options})
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    data = trainings.data(BATCHES) if data is None else data
    try:
        fitting = {"epochs": EPOCHS, **fitting}
        model.fit(data, verbose=0, shuffle=False, callbacks=[schedule, checkpoint, Beside()], **fitting)
    except Killed:
        checkpoint.close()
    return began, model


def steps(model):
    return trainings.count(model.optimizer)


def values(model):
    return [np.array(variable.numpy()) for variable in [*model.weights, *optimizer_variables(model.optimizer)]]


def position(run, step=None):
    opened = Run.open(run)
    return Position.of(opened.manifest(opened.newest() if step is None else step).values)


def put_back(model):
    return (getattr(model, "_initial_epoch", None), getattr(model, "_training_state", None)) == (None, None)


def test_a_killed_fit_goes_on_and_ends_where_it_would_have(keras, tmp_path, capsys):
    run = tmp_path / "run"
    assert program(keras, run, kill=9)[0] == [0, 1]
    assert position(run) == Position(fit=0, epoch=1, batch=2, batches=6, epochs=4, trained=8)
    capsys.readouterr()
    began, model = program(keras, run)
    first = capsys.readouterr().err.splitlines()[0]
    assert f"{run} resumed at step 8 (epoch 2, batch 2 of 6), saved" in first
    assert first.endswith(": epoch 2 of 4 begins again, 16 batches to go")
    assert began == [1, 2, 3] and steps(model) == 24
    assert float(np.asarray(model.optimizer.learning_rate)) == pytest.approx(0.1 / 4), "the schedule's last epoch"
    assert position(run) == Position(fit=0, epoch=3, batch=4, batches=6, epochs=4, trained=24)
    assert put_back(model)


@pytest.mark.full
def test_a_fit_that_is_killed_twice_comes_to_its_last_epoch_and_no_further(keras, tmp_path):
    for kill in (9, 15):
        program(keras, tmp_path / "run", kill=kill)
    began, model = program(keras, tmp_path / "run")
    assert began == [2, 3] and steps(model) == 24
    assert position(tmp_path / "run") == Position(fit=0, epoch=3, batch=4, batches=6, epochs=4, trained=24)


@pytest.mark.full
def test_a_fit_that_was_killed_between_two_epochs_repeats_no_batch(keras, tmp_path, capsys):
    program(keras, tmp_path / "run", kill=13)
    capsys.readouterr()
    began, model = program(keras, tmp_path / "run")
    assert began == [2, 3] and steps(model) == 24
    assert capsys.readouterr().err.splitlines()[0].endswith(": epoch 3 of 4 comes next, 12 batches to go")


@pytest.mark.full
def test_a_finished_run_that_is_started_again_trains_nothing(keras, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    program(keras, run)
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})  # another process
    capsys.readouterr()
    began, model = program(keras, run)
    assert began == [] and steps(model) == 24 and put_back(model)
    assert "nothing is left to train" in capsys.readouterr().err
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})
    assert program(keras, run, epochs=5)[0] == [4], "it was asked for one more epoch"


@pytest.mark.full
def test_the_fits_of_a_program_are_told_apart(keras, tmp_path, monkeypatch, capsys):
    """The program is killed in its second ``fit``. Started again, its first one trains nothing, and the second one goes on."""
    run = tmp_path / "run"
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=100)
    _, model = program(keras, run, checkpoint=checkpoint)
    program(keras, run, kill=33, checkpoint=checkpoint, model=model)
    assert position(run) == Position(fit=1, epoch=1, batch=2, batches=6, epochs=4, trained=8)
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})
    capsys.readouterr()
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=100)
    began, model = program(keras, run, checkpoint=checkpoint)
    assert began == [] and steps(model) == 32
    began, model = program(keras, run, checkpoint=checkpoint, model=model)
    assert began == [1, 2, 3] and steps(model) == 48
    assert f"{run}: epoch 2 of 4 begins again, 16 batches to go" in capsys.readouterr().err
    began, _ = program(keras, run, checkpoint=checkpoint, model=model, epochs=1)
    assert began == [0], "a third fit is new"


@pytest.mark.full
def test_a_second_fit_in_one_process_trains_all_its_epochs(keras, tmp_path):
    program(keras, tmp_path / "run")
    began, model = program(keras, tmp_path / "run")
    assert began == [0, 1, 2, 3] and steps(model) == 48


@pytest.mark.full
@pytest.mark.parametrize("why", ["off", "initial_epoch", "batches", "unknown"])
def test_where_it_is_not_wanted_or_not_known_all_epochs_are_trained(keras, tmp_path, why, capsys):
    run = tmp_path / "run"
    endless = trainings.data(BATCHES).filter(lambda x, y: True)  # of unknown size
    program(keras, run, kill=9, data=endless if why == "unknown" else None)
    options = {
        "off": {"resume_epochs": False},
        "initial_epoch": {"initial_epoch": 2},
        "batches": {"steps_per_epoch": 3, "data": trainings.data(BATCHES).repeat()},
        "unknown": {"data": endless},
    }[why]
    capsys.readouterr()
    began, model = program(keras, run, **options)
    assert began == ([2, 3] if why == "initial_epoch" else [0, 1, 2, 3])
    assert put_back(model)
    told = "fit begins with epoch 1, for its epochs have 3 batches now and not 6" in capsys.readouterr().err
    assert told == (why == "batches")
    if why == "initial_epoch":
        assert position(run).trained == 24, "two epochs were done before it, as the program says"


@pytest.mark.full
def test_a_program_that_opens_the_run_itself_trains_to_its_total(keras, tmp_path):
    """As README shows it: ``steps_per_epoch=total - start``."""
    run, total = tmp_path / "run", 12
    for kill in (5, None):
        model = trainings.dense(keras)
        checkpoint = deepfreeze.Checkpoint(run, every=2)
        start = checkpoint.open(model)
        data = trainings.data(total).skip(start)
        program(
            keras, run, kill, checkpoint=checkpoint, model=model, data=data, epochs=1, steps_per_epoch=total - start
        )
    assert start == 4 and steps(model) == total


@pytest.mark.full
def test_batches_are_counted_where_a_step_is_several_of_them(keras, tmp_path):
    """With executions of several steps, of which one is captured in the middle; the last one of an epoch is shorter. A training ends with
    the execution in which its last batch is."""

    def model():
        return trainings.dense(keras, keras.optimizers.SGD(0.01), steps_per_execution=4)

    run = tmp_path / "run"
    program(keras, run, kill=10, model=model(), every=3)
    assert [position(run, step) for step in (3, 6)] == [
        Position(fit=0, epoch=0, batch=3, batches=6, epochs=4, trained=3),
        Position(fit=0, epoch=0, batch=6, batches=6, epochs=4, trained=6),
    ]
    began, trained = program(keras, run, model=model(), every=3)
    assert began == [1, 2, 3] and steps(trained) == 24 + 1


@pytest.mark.full
@kerases.needs_keras_3
def test_with_gradient_accumulation_batches_count_and_not_updates(tmp_path):
    import keras

    def model():
        return trainings.dense(keras, keras.optimizers.SGD(0.01, gradient_accumulation_steps=2))

    run = tmp_path / "run"
    program(keras, run, kill=5, model=model(), every=2)
    assert position(run) == Position(fit=0, epoch=1, batch=2, batches=6, epochs=4, trained=8)
    began, trained = program(keras, run, model=model(), every=2)
    assert began == [1, 2, 3] and steps(trained) == 12


def test_a_model_that_its_first_batch_builds_repeats_no_epoch_either(keras, tmp_path):
    run = tmp_path / "run"
    program(keras, run, kill=9, model=later_models.sequential(keras))
    began, model = program(keras, run, model=later_models.sequential(keras))
    assert began == [1, 2, 3] and steps(model) == 24
    assert float(np.asarray(model.optimizer.learning_rate)) == pytest.approx(0.1 / 4), "the schedule's last epoch"
    assert position(run) == Position(fit=0, epoch=3, batch=4, batches=6, epochs=4, trained=24) and put_back(model)


@pytest.mark.full
@pytest.mark.parametrize(
    "options", [{}, {"run_eagerly": True}, {"steps_per_execution": 3}], ids=["graph", "eager", "threes"]
)
def test_a_finished_run_of_a_model_built_late_trains_nothing(keras, tmp_path, monkeypatch, capsys, options):
    """Its first batch builds it, and is not trained on. A further fit of the program is trained as ever."""
    run = tmp_path / "run"
    _, trained = program(keras, run, model=later_models.sequential(keras))
    before, marks = values(trained), (run / "marks.json").read_bytes()
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})  # another process
    capsys.readouterr()
    model = later_models.sequential(keras)
    model.compile(model.optimizer, loss="mse", **options)
    began, _ = program(keras, run, model=model)
    assert began == [3] and steps(model) == 24 and put_back(model)
    assert "nothing is left to train of this fit" in capsys.readouterr().err
    assert all(map(np.array_equal, values(model), before))
    assert (run / "marks.json").read_bytes() == marks
    program(keras, run, model=model)
    assert steps(model) == 48 and deepfreeze.latest(run).step == 48


@pytest.mark.full
def test_a_later_checkpoint_than_foreseen_moves_no_end(keras, tmp_path, monkeypatch, capsys):
    """A model that is built late has begun its epoch when the start finishes a dead attempt's checkpoint of a later one."""
    run = tmp_path / "run"
    program(keras, run, kill=9, model=later_models.sequential(keras))
    monkeypatch.setattr("deepfreeze.training.fits.Fits.foresee", lambda *arguments: 0)
    capsys.readouterr()
    began, model = program(keras, run, model=later_models.sequential(keras))
    assert began == [0, 1, 2] and steps(model) == 24
    assert capsys.readouterr().err.splitlines()[0].endswith(": epoch 1 of 4 begins again, 16 batches to go")


@pytest.mark.full
def test_epochs_that_were_left_out_are_trained_by_the_next_start(keras, tmp_path, caplog, monkeypatch):
    """A model that is built late has begun the newest checkpoint's epoch when the start finds it damaged, and restores the one before."""
    run = tmp_path / "run"
    program(keras, run, kill=21, model=later_models.sequential(keras), every=6)
    newest = deepfreeze.latest(run)
    os.truncate(newest.path / "model.weights.h5", 1000)
    began, model = program(keras, run, model=later_models.sequential(keras), every=6)
    assert newest.step == 18 and began == [3] and steps(model) == 18
    assert "epoch 3 is left out" in caplog.text
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})  # another process
    began, model = program(keras, run, model=later_models.sequential(keras), every=6)
    assert began == [3] and steps(model) == 24


@pytest.mark.full
def test_a_keras_without_a_way_is_told_the_line_to_write(keras, tmp_path, monkeypatch, capsys, caplog):
    program(keras, tmp_path / "run", kill=9)
    for name in ("first_epoch", "training_state"):
        monkeypatch.setattr(fit_beginning, name, lambda model: None)
    began, _ = program(keras, tmp_path / "run")
    assert began == [0, 1, 2, 3] and "fit(initial_epoch=1)" in caplog.text


@pytest.mark.full
def test_another_callback_that_chose_the_epoch_is_left_alone(keras, tmp_path):
    """As BackupAndRestore does."""
    model = trainings.dense(keras)
    chosen = private_api.first_epoch(model) or private_api.training_state(model)
    chosen(2)
    assert private_api.first_epoch(model) is None and private_api.training_state(model) is None
    assert program(keras, tmp_path / "run", model=model)[0] == [2, 3]


@pytest.mark.full
def test_after_a_sigterm_training_goes_on_where_it_was_told_to_stop(keras, tmp_path):
    class Preempted(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if trainings.count(self.model.optimizer) == 9:
                os.kill(os.getpid(), signal.SIGTERM)

    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run", every=100)
    model.fit(trainings.data(BATCHES), epochs=EPOCHS, verbose=0, callbacks=[Preempted(), checkpoint])
    assert position(tmp_path / "run").trained == steps(model) < 24
    began, model = program(keras, tmp_path / "run", model=trainings.dense(keras))
    assert began[0] == 1 and steps(model) == 24


@pytest.mark.full
@pytest.mark.ranks
@pytest.mark.parametrize("model", ["built", "unbuilt"])
@pytest.mark.parametrize("api", kerases.NAMES)
@pytest.mark.parametrize("ranks", [0, 2])
def test_a_killed_job_of_120_steps_ends_at_step_120(model, api, ranks, tmp_path):
    """And started once more, it trains nothing."""
    run = tmp_path / "run"
    options = {"ranks": ranks, "TF_USE_LEGACY_KERAS": "1" if api == "tf_keras" else "0"}
    with jobs.job("epochs.py", api, run, 40, model, **options) as job:
        assert job.wait() != 0
    assert position(run, 40) == Position(fit=0, epoch=1, batch=10, batches=30, epochs=4, trained=40)
    told = jobs.run("epochs.py", api, run, 0, model, **options)
    assert "resumed at step 40 (epoch 2, batch 10 of 30)" in told
    assert told.count("epochs 1, 2, 3 with rates 0.05, 0.033, 0.025 to step 120") == max(ranks, 1)
    newest = deepfreeze.latest(run)
    assert newest.step == 120
    told = jobs.run("epochs.py", api, run, 0, model, **options)
    assert "nothing is left to train" in told and told.count("to step 120") == max(ranks, 1)
    assert deepfreeze.latest(run) == newest


@pytest.mark.full
@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [0, 2])
def test_a_checkpoint_that_a_start_finishes_has_its_position(ranks, tmp_path, testing_library):
    """The job dies while the transfer of step 40 is held; the shards in the local tier are all that there is of it."""
    run, local = tmp_path / "run", tmp_path / "local"
    local.mkdir()
    held = {
        "DEEPFREEZE_FAULT": "delay=600000:fdatasync:step-0000000040.partial:1",
        "DEEPFREEZE_LIBRARY": testing_library,
    }
    with jobs.job("epochs.py", "keras", run, 45, "built", local, ranks=ranks, **held) as job:
        assert job.wait() != 0
    assert deepfreeze.latest(run).step == 30
    told = jobs.run("epochs.py", "keras", run, 0, "built", local, ranks=ranks)
    assert "resumed at step 40 (epoch 2, batch 10 of 30)" in told
    assert told.count("epochs 1, 2, 3 with rates 0.05, 0.033, 0.025 to step 120") == max(ranks, 1)
    assert position(run, 40) == Position(fit=0, epoch=1, batch=10, batches=30, epochs=4, trained=40)
