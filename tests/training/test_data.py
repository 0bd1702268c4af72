"""``Checkpoint(data=...)``: a killed ``fit`` goes on inside of its epoch, repeats no sample and leaves none out.

A ``fit`` that an exception ends is, for the next ``Checkpoint``, as one whose process was killed.
"""

import logging
import signal

import numpy as np
import pytest

import deepfreeze
from deepfreeze.data import Resumable, Skipping
from deepfreeze.errors import OptionError
from deepfreeze.format import attachment_tree
from deepfreeze.format.named_values import ATTACHMENTS
from deepfreeze.plan.job_end import JobEnd
from deepfreeze.state.epoch_under_way import EpochUnderWay
from deepfreeze.state.keras_objects import optimizer_variables
from deepfreeze.store.run import Run
from deepfreeze.thaw.rank_records import read_records
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow

ITEMS, BATCH, BATCHES, EPOCHS = 23, 4, 6, 4


class Killed(Exception):
    """In place of a kill."""


def arrays():
    rng = np.random.default_rng(0)
    return rng.random((ITEMS, trainings.FEATURES), np.float32), rng.random((ITEMS, 1), np.float32)


def program(keras, run, kill=None, *, data=None, model=None, before=None, fitting=None, **options):
    """A program with one ``fit`` over a ``Resumable``, that dies at the end of the step ``kill``. Returns (epoch, batch) of each batch, the
    ``History`` and the model. ``before``: called with callback, model and data before ``fit``."""
    seen = []

    class Beside(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            seen.append((self.epoch, batch))
            if trainings.count(self.model.optimizer) == kill:
                raise Killed

    data = Resumable(arrays(), batch_size=BATCH, seed=5) if data is None else data
    model = model or trainings.dense(keras, keras.optimizers.Adam(0.01), metrics=["mae"])
    checkpoint = deepfreeze.Checkpoint(run, **{"every": 1, "keep": 100, "data": data, **options})
    history = None
    try:
        if before is not None:
            before(checkpoint, model, data)
        fitting = {"epochs": EPOCHS, "verbose": 0, **(fitting or {})}
        history = model.fit(data, callbacks=[checkpoint, Beside()], **fitting)
    except Killed:
        checkpoint.close()
    return seen, history, model


def values(model):
    return [
        np.array(variable.numpy()).tobytes() for variable in [*model.weights, *optimizer_variables(model.optimizer)]
    ]


def assert_same(found, expected):
    """Two ends of ``program``: the same ``History`` and the same values, bit for bit."""
    assert found[1].epoch == expected[1].epoch
    assert {name: list(map(float, row)) for name, row in found[1].history.items() if "deepfreeze" not in name} == {
        name: list(map(float, row)) for name, row in expected[1].history.items() if "deepfreeze" not in name
    }
    assert values(found[2]) == values(expected[2])


ALL = [(epoch, batch) for epoch in range(EPOCHS) for batch in range(BATCHES)]


@pytest.mark.parametrize("kill", [9, pytest.param(13, marks=pytest.mark.full), pytest.param(1, marks=pytest.mark.full)])
def test_history_of_a_resumed_epoch_equals_the_uninterrupted_one(keras, tmp_path, kill):
    whole = program(keras, tmp_path / "whole")
    assert whole[0] == ALL
    before = program(keras, tmp_path / "run", kill=kill)
    after = program(keras, tmp_path / "run")
    assert before[0] + after[0] == ALL, "no batch twice, none left out, and Keras counts on"
    assert_same(after, whole)


@pytest.mark.full
def test_open_says_where_the_data_are_and_fit_goes_on_there(keras, tmp_path):
    whole = program(keras, tmp_path / "whole")
    program(keras, tmp_path / "run", kill=9)
    found = []

    def before(checkpoint, model, data):
        found.extend([checkpoint.open(model), data.epoch])
        next(iter(data))  # to see its shapes

    after = program(keras, tmp_path / "run", before=before)
    assert found == [9, 1]
    assert after[0] == ALL[9:]
    assert_same(after, whole)


@kerases.one_will_do
@pytest.mark.parametrize("kind", ["Resumable", pytest.param("Skipping", marks=pytest.mark.full)])
def test_open_goes_on_where_one_batch_of_the_epoch_is_left(keras, tmp_path, kind):
    """Keras is told of the whole epoch, and looks at two batches of it."""

    def source():
        if kind == "Resumable":
            return Resumable(arrays(), batch_size=BATCH, seed=5)
        import tensorflow as tf

        return Skipping(lambda epoch: tf.data.Dataset.from_tensor_slices(arrays()).shuffle(ITEMS, seed=epoch).batch(4))

    def opens(checkpoint, model, data):
        checkpoint.open(model)

    whole = program(keras, tmp_path / "whole", data=source())
    program(keras, tmp_path / "run", kill=5, data=source())
    after = program(keras, tmp_path / "run", data=source(), before=opens)
    assert after[0] == ALL[5:]
    assert_same(after, whole)


@kerases.one_will_do
def test_a_larger_batch_trains_nothing_of_an_interrupted_epoch_again(keras, tmp_path):
    """23 items: after one batch of 4, there are as many batches of 8 left as a whole epoch has."""
    import tensorflow as tf

    trained = []

    class Noting(keras.Sequential):
        def train_step(self, data):
            tf.py_function(lambda x: trained.extend(x.numpy()[:, 0].tolist()), [data[0]], [])
            return super().train_step(data)

    def model():
        return trainings.dense(keras, keras.optimizers.Adam(0.01), cls=Noting, metrics=["mae", target])

    def target(y_true, y_pred):
        return y_true[:, 0]

    program(keras, tmp_path / "run", kill=1, model=model())
    larger = Resumable(arrays(), batch_size=8, seed=5)
    batches, history, _ = program(keras, tmp_path / "run", data=larger, model=model())
    items = np.sort(arrays()[0][:, 0]).tolist()
    for epoch in range(EPOCHS):
        assert sorted(trained[epoch * ITEMS : (epoch + 1) * ITEMS]) == items, f"epoch {epoch}"
    assert batches == [(epoch, batch) for epoch in range(EPOCHS) for batch in range(3)]
    assert history.history["target"] == pytest.approx([arrays()[1].mean()] * EPOCHS, rel=1e-5), "the means go on"


@pytest.mark.full
def test_a_rest_that_fills_no_larger_batch_is_left_out_and_told(keras, tmp_path, caplog):
    """Of 23 items 16 are trained, and 8 make a batch."""
    program(keras, tmp_path / "run", kill=4, data=Resumable(arrays(), batch_size=4, seed=5, last="drop"))
    larger = Resumable(arrays(), batch_size=8, seed=5, last="drop")
    batches, history, _ = program(keras, tmp_path / "run", data=larger)
    assert batches == [(epoch, batch) for epoch in range(1, EPOCHS) for batch in range(2)]
    assert history.epoch == [1, 2, 3]
    assert "epoch 1 ends with batch 4 of 5: what is left of it does not fill a batch of this job" in caplog.text


@pytest.mark.full
def test_data_that_the_program_has_moved_into_an_epoch_are_refused(keras, tmp_path):
    """``Checkpoint`` says where they go on. Keras has counted the rest of an epoch as an epoch."""
    data = Resumable(arrays(), batch_size=BATCH, seed=5)
    data.begin(0, 16)
    with pytest.raises(OptionError, match=r"whose epochs have 6 batches .* found a fit whose epochs have 2 batches"):
        program(keras, tmp_path / "run", data=data)


@pytest.mark.full
def test_the_initial_epoch_that_the_data_say_goes_on_inside_too(keras, tmp_path):
    whole = program(keras, tmp_path / "whole")
    program(keras, tmp_path / "run", kill=9)
    after = program(keras, tmp_path / "run", fitting={"initial_epoch": 1})
    assert after[0] == ALL[9:]
    assert_same(after, whole)


@pytest.mark.full
def test_a_fit_after_one_that_ended_inside_an_epoch_saves_its_own_place(keras, tmp_path):
    """A callback ends the first fit inside of an epoch. The second fit has the next epoch of the data, and is killed in it."""

    def two(folder, kill=None, stop=2):
        class Beside(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                step = trainings.count(self.model.optimizer)
                if step == kill:
                    raise Killed
                if step == stop:
                    self.model.stop_training = True

        data = Resumable(arrays(), batch_size=BATCH, seed=5)
        model = trainings.dense(keras, keras.optimizers.Adam(0.01))
        checkpoint = deepfreeze.Checkpoint(tmp_path / folder, every=1, keep=100, data=data, verbose=0)
        try:
            for _ in range(2):
                history = model.fit(data, epochs=2, verbose=0, callbacks=[checkpoint, Beside()])
        except Killed:
            checkpoint.close()
            history = None
        return None, history, model

    two("run", kill=5)
    found = read_state(tmp_path / "run", 5)
    assert (found["epoch"], found["items"]) == (1, 3 * BATCH), "three batches of the second fit"


def told_to_stop(keras, monkeypatch, run, at=None, how="SIGTERM"):
    """A program with validation and a callback in ``extra=`` that changes at the end of an epoch. It is told to stop in the step ``at``.
    Returns why it has ended, the ``History``, the model, and the newest committed step at the begin of each validation."""

    class Lowers(keras.callbacks.Callback):
        ends, committed = 0, []

        def state_dict(self):
            return {"ends": self.ends}

        def load_state_dict(self, state):
            self.ends = state["ends"]

        def on_test_begin(self, logs=None):
            newest = deepfreeze.latest(run)
            self.committed.append(newest and newest.step)

        def on_epoch_begin(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.01 / (1 + self.ends)

        def on_epoch_end(self, epoch, logs=None):
            self.ends += 1

    class Told(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if trainings.count(self.model.optimizer) != at:
                return
            if how == "SIGTERM":
                signal.raise_signal(signal.SIGTERM)
            else:
                patch.setattr(JobEnd, "near", lambda *args: True)

    data, lowers = Resumable(arrays(), batch_size=BATCH, seed=5), Lowers()
    model = trainings.dense(keras, keras.optimizers.Adam(0.01), metrics=["mae"])
    checkpoint = deepfreeze.Checkpoint(run, every=100, data=data, extra={"lowers": lowers})
    with monkeypatch.context() as patch:
        if how == "ends_at" and at is not None:
            patch.setattr(JobEnd, "known", True)
        callbacks = [checkpoint, Told(), lowers]
        history = model.fit(data, epochs=EPOCHS, verbose=0, validation_data=arrays(), callbacks=callbacks)
    return checkpoint.stats.stopped, history, model, lowers.committed


@pytest.mark.full
@pytest.mark.parametrize("how", ["SIGTERM", "ends_at"])
@pytest.mark.parametrize("at", [10, 11, 12])
def test_a_job_told_to_stop_at_an_epochs_end_has_its_history(keras, tmp_path, caplog, monkeypatch, at, how):
    """The epoch's last step is 12. It is committed before the epoch's validation."""
    whole = told_to_stop(keras, monkeypatch, tmp_path / "whole")
    why, _, _, committed = told_to_stop(keras, monkeypatch, tmp_path / "run", at, how)
    assert why == how and committed[1] in {10: (11, None), 11: (12,), 12: (None,)}[at]
    assert at < deepfreeze.latest(tmp_path / "run").step <= 13
    after = told_to_stop(keras, monkeypatch, tmp_path / "run")
    assert after[0] is None and "have not seen" not in caplog.text
    assert_same(after, whole)


@pytest.mark.full
def test_a_job_told_to_stop_at_its_last_batch_commits_it_at_once(keras, tmp_path, caplog, monkeypatch):
    """No step follows that could have the epoch's end. The next start says so."""
    last = BATCHES * EPOCHS
    why, _, _, committed = told_to_stop(keras, monkeypatch, tmp_path / "run", last - 1)
    assert why == "SIGTERM" and committed[-1] == last
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})  # another process
    after = told_to_stop(keras, monkeypatch, tmp_path / "run")
    assert "have not seen" in caplog.text and after[1].epoch == [*range(EPOCHS - 1)]


def read_state(run, step):
    """What the data had saved of themselves at ``step``."""
    opened = Run.open(run)
    (record,) = read_records(opened, opened.manifest(step))
    return attachment_tree.decode(record.values[ATTACHMENTS], run)["objects"][attachment_tree.DATA]


@pytest.mark.full
def test_a_finished_job_that_is_started_again_has_its_history(keras, tmp_path, monkeypatch):
    whole = program(keras, tmp_path / "run")
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})  # another process
    after = program(keras, tmp_path / "run")
    assert after[0] == []
    assert_same(after, whole)


@pytest.mark.full
def test_a_given_initial_epoch_begins_that_epoch(keras, tmp_path):
    program(keras, tmp_path / "run", kill=9)
    after = program(keras, tmp_path / "run", fitting={"initial_epoch": 2})
    assert after[0] == ALL[2 * BATCHES :]


@pytest.mark.full
def test_executions_of_several_steps_go_on_inside_of_an_epoch(keras, tmp_path):
    def model():
        return trainings.dense(keras, keras.optimizers.Adam(0.01), steps_per_execution=2, metrics=["mae"])

    whole = program(keras, tmp_path / "whole", model=model())
    program(keras, tmp_path / "run", kill=8, model=model())
    after = program(keras, tmp_path / "run", model=model())
    assert after[0][0] == (1, 3), "batches 3 and 4 of epoch 2 are the next execution"
    assert_same(after, whole)


@pytest.mark.full
def test_a_fit_that_was_finished_trains_nothing_and_the_next_goes_on(keras, tmp_path, monkeypatch):
    """Two fits of one program: the second is interrupted. Started again, the program's first fit has nothing to train."""

    def two(folder, kill=None):
        monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})  # another process
        data = Resumable(arrays(), batch_size=BATCH, seed=5)
        model = trainings.dense(keras, keras.optimizers.Adam(0.01), metrics=["mae"])
        checkpoint = deepfreeze.Checkpoint(tmp_path / folder, every=1, keep=100, data=data)
        fits = []
        try:
            for _ in range(2):
                dies = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: end(model, kill))
                fits.append(model.fit(data, epochs=2, verbose=0, callbacks=[checkpoint, dies]))
        except Killed:
            checkpoint.close()
        return None, fits[-1], model

    def end(model, kill):
        if trainings.count(model.optimizer) == kill:
            raise Killed

    whole = two("whole")
    two("run", kill=15)
    assert_same(two("run"), whole)


@pytest.mark.full
def test_models_that_the_first_batch_would_build_go_on_too(keras, tmp_path):
    layers = keras.layers

    def model():
        keras.utils.set_random_seed(1)
        built = keras.Sequential([layers.Dense(8, "relu"), layers.Dense(1)])
        built.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], jit_compile=False)
        return built

    whole = program(keras, tmp_path / "whole", model=model())
    program(keras, tmp_path / "run", kill=9, model=model())
    after = program(keras, tmp_path / "run", model=model())
    assert after[0] == ALL[9:]
    assert_same(after, whole)


@pytest.mark.full
def test_a_loop_goes_on_with_the_next_batch(keras, tmp_path):
    def loop(run, kill=None):
        data = Resumable(arrays(), batch_size=BATCH, seed=5)
        model = trainings.dense(keras, keras.optimizers.Adam(0.01))
        seen = []
        with deepfreeze.capture(model.optimizer, model, run, every=1, keep=100, data=data) as checkpoint:
            while data.epoch < 2:
                for x, y in data.dataset():
                    model.train_on_batch(x, y)
                    seen.append(np.asarray(x).tobytes())
                    checkpoint.step()
                    if len(seen) == kill:
                        checkpoint.close()
                        return seen, model
        return seen, model

    whole, expected = loop(tmp_path / "whole")
    first, _ = loop(tmp_path / "run", kill=9)
    rest, model = loop(tmp_path / "run")
    assert first + rest == whole and len(whole) == 2 * BATCHES
    assert values(model) == values(expected)


@pytest.mark.full
def test_a_run_that_was_saved_without_data_repeats_the_interrupted_epoch(keras, tmp_path, caplog, monkeypatch):
    model = trainings.dense(keras, keras.optimizers.Adam(0.01), metrics=["mae"])
    data = Resumable(arrays(), batch_size=BATCH, seed=5)
    model.fit(
        data,
        verbose=0,
        epochs=EPOCHS,
        callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=10, keep=1, final=False)],
    )
    monkeypatch.setattr("deepfreeze.process_state.PROCESS.ended_fits", {})  # another process
    after = program(keras, tmp_path / "run")
    assert after[0][0] == (3, 0) and "saved without data=" in caplog.text


def test_a_job_without_data_is_told_that_its_checkpoint_has_some(keras, tmp_path, caplog):
    program(keras, tmp_path / "run", 7, every=5)
    assert "no data=" not in caplog.text
    data = Resumable(arrays(), batch_size=BATCH, seed=5)
    trainings.dense(keras, keras.optimizers.Adam(0.01), metrics=["mae"]).fit(
        data, verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=5)]
    )
    assert (
        "step 5 knows its place in the data, a Resumable, and this job has no data= to go on from there" in caplog.text
    )


@pytest.mark.full
def test_metrics_that_go_on_from_another_ranks_are_told_of(keras, tmp_path, caplog, monkeypatch):
    program(keras, tmp_path / "run", 9)
    monkeypatch.setattr(
        EpochUnderWay, "load_state_dict", lambda self, state: setattr(self, "loaded", {**state, "ranks": 4})
    )
    with caplog.at_level(logging.INFO):
        assert program(keras, tmp_path / "run")[0] == ALL[9:]
    told = "the metrics of epoch 2 go on from those of rank 0 on all ranks: 4 ranks have begun the epoch, and 1 go on"
    assert told in caplog.text


def test_wrong_data_are_refused_and_nothing_is_lost(keras, tmp_path):
    run = tmp_path / "run"
    program(keras, run, kill=9)
    x, y = arrays()
    for other, told in [
        (Resumable((x[:20], y[:20]), batch_size=BATCH, seed=5), "number of items"),
        (Resumable((x + 1, y), batch_size=BATCH, seed=5), "fingerprint"),
        (Resumable((x, y), batch_size=BATCH, seed=6), "seed"),
    ]:
        with pytest.raises(OptionError, match=told):
            program(keras, run, data=other)
    checkpoint = deepfreeze.Checkpoint(run, data=Resumable(arrays(), batch_size=BATCH, seed=5))
    with pytest.raises(OptionError, match="a fit of these data, whose epochs have 6 batches"):
        trainings.dense(keras).fit(*arrays(), batch_size=BATCH, verbose=0, callbacks=[checkpoint])
    dealt = Resumable(arrays(), batch_size=BATCH, seed=5, rank=0, ranks=4)
    with pytest.raises(OptionError, match="dealt to the 1 ranks that train; found data that are dealt to 4"):
        program(keras, run, data=dealt)
    with pytest.raises(OptionError, match="steps_per_epoch"):
        program(keras, run, fitting={"steps_per_epoch": BATCHES})
    with pytest.raises(OptionError, match="resume_epochs"):
        deepfreeze.Checkpoint(run, data=Resumable(arrays(), batch_size=BATCH), resume_epochs=False)
    with pytest.raises(OptionError, match="Resumable"):
        deepfreeze.Checkpoint(run, data=arrays())
    assert program(keras, run)[0] == ALL[9:]
