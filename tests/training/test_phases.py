"""A program that goes on training in the run of an earlier training moves none of its checkpoints away: another optimizer that nobody has
restored, or a count of steps that was set back, is an error before the first step, and the error has the line to write."""

import os

import pytest

import deepfreeze
from tests.support import h5, kerases, trainings

pytestmark = pytest.mark.tensorflow

FIRST = 3  # steps of the first training


@pytest.fixture(autouse=True)
def another_process(monkeypatch):
    """Each test is a process of its own."""
    start_again(monkeypatch)


def start_again(monkeypatch):
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.last_trainings", {})


def callback(run, **options):
    return deepfreeze.Checkpoint(run, **{"every": 2, "keep": 9, "verbose": 0, **options})


def fit(model, checkpoint, steps=FIRST, *others):
    model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=[*others, checkpoint])


def saved(run):
    return [info.step for info in deepfreeze.checkpoints(run)]


def recompiled(keras, model):
    """As Keras's guide to fine-tuning has it: with a lower rate."""
    model.compile(keras.optimizers.Adam(1e-5), "mse", jit_compile=False)


def thawed(keras, model):
    model.layers[0].trainable = True
    recompiled(keras, model)


def other_part(keras, model):
    """The two phases train no variable in common."""
    model.layers[0].trainable, model.layers[1].trainable = True, False
    recompiled(keras, model)


def with_fresh_checkpoint(run):
    return callback(run, resume="off")


CHANGES = [thawed, other_part, recompiled]


@kerases.cases([thawed, other_part], often=[thawed], name="change")
def test_a_second_phase_with_a_callback_of_its_own_has_the_same_error(keras, change, tmp_path, monkeypatch):
    """The checkpoint of the first phase does not fit: it has other slots."""
    monkeypatch.chdir(tmp_path)
    model = trainings.dense(keras)
    model.layers[0].trainable = False
    model.compile("adam", "mse", jit_compile=False)
    fit(model, callback("runs-x"))
    change(keras, model)
    weights = model.get_weights()
    with pytest.raises(deepfreeze.RunError, match=r'deepfreeze\.Checkpoint\("runs-x-phase-2"\)') as caught:
        fit(model, callback("runs-x"))
    assert caught.value.expected.endswith(f"up to step {FIRST}")
    assert all((mine == theirs).all() for mine, theirs in zip(model.get_weights(), weights, strict=True))
    # A model that shares no variable with the one that was trained is simply another one.
    with pytest.raises(deepfreeze.StructureError):
        fit(trainings.dense(keras, units=5), callback("runs-x"))
    assert saved("runs-x") == [2, 3] and not os.path.exists("runs-x/abandoned")


@kerases.cases(CHANGES, both=[thawed], name="change", often=[])
def test_a_second_phase_in_the_same_run_is_an_error_and_moves_nothing(keras, change, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, checkpoint = trainings.dense(keras), callback("runs-x")
    if change is not recompiled:
        model.layers[0].trainable = False
        model.compile("adam", "mse", jit_compile=False)
    fit(model, checkpoint)
    before, weights = saved("runs-x"), model.get_weights()
    change(keras, model)
    for again in (checkpoint, with_fresh_checkpoint("runs-x")):
        with pytest.raises(deepfreeze.RunError, match=r'deepfreeze\.Checkpoint\("runs-x-phase-2"\)') as caught:
            fit(model, again)
        assert caught.value.found.startswith("another one, which stands at step 0")
        assert caught.value.expected.endswith(f"up to step {FIRST}")
    assert saved("runs-x") == before == [2, 3] and not os.path.exists("runs-x/abandoned")
    assert trainings.count(model.optimizer) == 0
    assert all((mine == theirs).all() for mine, theirs in zip(model.get_weights(), weights, strict=True))
    fit(model, callback("runs-x-phase-2"))
    assert saved("runs-x") == before and saved("runs-x-phase-2") == [2, 3]
    deepfreeze.Checkpoint("runs-x").open(phase_one(keras, change))  # started again, the first phase finds its own


def phase_one(keras, change):
    model = trainings.dense(keras)
    model.layers[0].trainable = change is recompiled
    model.compile("adam", "mse", jit_compile=False)
    return model


@pytest.mark.full
def test_a_third_phase_is_told_of_a_third_run(keras, tmp_path):
    run = tmp_path / "a-phase-2"
    model = trainings.dense(keras)
    fit(model, callback(run))
    recompiled(keras, model)
    with pytest.raises(deepfreeze.RunError, match=r'a-phase-3"\)'):
        callback(run, resume="off").open(model)


@pytest.mark.full
def test_a_phase_after_an_interrupted_one_moves_nothing_either(keras, tmp_path):
    def interrupt(batch, logs):
        if batch == 3:
            raise KeyboardInterrupt

    model, checkpoint = trainings.dense(keras), callback(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        fit(model, checkpoint, 9, keras.callbacks.LambdaCallback(on_train_batch_begin=interrupt))
    recompiled(keras, model)
    with pytest.raises(deepfreeze.RunError, match="run of its own"):
        fit(model, checkpoint)
    assert saved(tmp_path / "run") == [2]


@pytest.mark.full
def test_a_model_compiled_anew_after_open_loses_no_checkpoint(keras, tmp_path, monkeypatch):
    fit(trainings.dense(keras), callback(tmp_path / "run"))
    start_again(monkeypatch)
    model, checkpoint = trainings.dense(keras), callback(tmp_path / "run")
    assert checkpoint.open(model) == FIRST
    recompiled(keras, model)
    with pytest.raises(deepfreeze.RunError, match="run of its own"):
        fit(model, checkpoint)
    assert saved(tmp_path / "run") == [2, 3]
    fit(model, checkpoint)  # closed by the error, it begins as a new one does, and restores
    assert saved(tmp_path / "run") == [2, 3, 4, 6]


@pytest.mark.full
def test_a_restarted_program_ends_at_its_second_phase_too(keras, tmp_path, monkeypatch):
    """Its first ``fit`` has nothing left to train."""
    fit(trainings.dense(keras), callback(tmp_path / "run"))
    start_again(monkeypatch)
    model, checkpoint = trainings.dense(keras), callback(tmp_path / "run")
    fit(model, checkpoint)
    recompiled(keras, model)
    with pytest.raises(deepfreeze.RunError, match="run of its own"):
        fit(model, checkpoint)
    assert saved(tmp_path / "run") == [2, 3]


@kerases.cases(["restore", "older", "open", "fit"], both=["restore"], name="by", often=["restore"])
def test_an_optimizer_that_was_restored_from_the_run_goes_on(keras, by, tmp_path):
    run = tmp_path / "run"
    model, checkpoint = trainings.dense(keras), callback(run)
    fit(model, checkpoint)
    model.compile("adam", "mse", jit_compile=False)
    begins = FIRST
    if by == "restore":
        deepfreeze.restore(model, run)
    elif by == "older":
        begins = deepfreeze.restore(model, run, step=2).step
    elif by == "open":
        other = callback(run)
        assert other.open(model) == FIRST
        other.close()
    else:
        checkpoint = callback(run, resume_epochs=False)
    fit(model, checkpoint)
    assert trainings.count(model.optimizer) == begins + FIRST and saved(run)[-1] == begins + FIRST
    model.save_weights(tmp_path / "stock.weights.h5")
    h5.assert_same(deepfreeze.latest(run).path / "model.weights.h5", tmp_path / "stock.weights.h5")


@pytest.mark.full
def test_what_was_restored_before_the_last_training_counts_no_more(keras, tmp_path):
    run = tmp_path / "run"
    model, checkpoint = trainings.dense(keras), callback(run)
    fit(model, checkpoint)
    first = model.optimizer
    model.compile("adam", "mse", jit_compile=False)
    deepfreeze.restore(model, run)
    second = model.optimizer
    model.compile(first, "mse", jit_compile=False)
    fit(model, checkpoint)
    model.compile(second, "mse", jit_compile=False)
    with pytest.raises(deepfreeze.RunError, match=f"stands at step {FIRST}"):
        fit(model, checkpoint)
    assert saved(run) == [2, 3, 4, 6]


@pytest.mark.full
def test_a_restore_from_another_run_does_not_fill_the_optimizer(keras, tmp_path):
    fit(trainings.dense(keras), callback(tmp_path / "other"), 2)
    model, checkpoint = trainings.dense(keras), callback(tmp_path / "run")
    fit(model, checkpoint)
    model.compile("adam", "mse", jit_compile=False)
    deepfreeze.restore(model, tmp_path / "other")
    with pytest.raises(deepfreeze.RunError, match="stands at step 2"):
        fit(model, checkpoint)
    assert saved(tmp_path / "run") == [2, 3]


@kerases.cases(["same", "fresh"], name="checkpoint", often=["same"])
def test_a_count_that_was_set_back_between_fits_is_an_error(keras, checkpoint, tmp_path):
    run = tmp_path / "run"
    model, used = trainings.dense(keras), callback(run)
    fit(model, used)
    model.optimizer.iterations.assign(1)
    with pytest.raises(deepfreeze.RunError, match=r"deepfreeze\.restore\(model, .*run\", step=N\)") as caught:
        fit(model, used if checkpoint == "same" else with_fresh_checkpoint(run))
    assert caught.value.found.startswith("1:") and saved(run) == [2, 3] and not (run / "abandoned").exists()
    model.optimizer.iterations.assign(7)  # higher is no harm
    fit(model, used)
    assert saved(run) == [2, 3, 8, 10]


@pytest.mark.full
def test_a_loop_with_another_optimizer_moves_nothing_away_either(keras, tmp_path):
    run = tmp_path / "run"
    model = trainings.dense(keras)
    for _ in range(2):  # the second one resumes
        with deepfreeze.capture(model.optimizer, model, run, every=2, keep=9, verbose=0) as checkpoint:
            for x, y in trainings.data(2):
                model.train_on_batch(x, y)
                checkpoint.step()
    recompiled(keras, model)
    with pytest.raises(deepfreeze.RunError, match=r'deepfreeze\.capture\(optimizer, model, ".*run-phase-2"\)'):
        deepfreeze.capture(model.optimizer, model, run, resume="off", verbose=0)
    assert saved(run) == [2, 4]


@pytest.mark.full
def test_a_model_that_shares_but_a_frozen_base_is_another_training(keras, tmp_path):
    """Three folds in one run, each with a head of its own over one base that stays as it is."""
    base = keras.Sequential([keras.Input((trainings.FEATURES,)), keras.layers.Dense(4)])
    base.trainable = False
    for _ in range(3):
        model = keras.Sequential([base, keras.layers.Dense(1)])
        model.compile("adam", "mse", jit_compile=False)
        fit(model, callback(tmp_path / "one", resume="off"))
    assert saved(tmp_path / "one") == [2, 3]
