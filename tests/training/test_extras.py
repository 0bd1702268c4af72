"""What is saved besides the model: the user's objects, and the random number generators; a resumed training is the one that was
never interrupted."""

import random
import shutil
import tempfile
import types

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.events.messages import to_logger
from deepfreeze.format import state_tree
from deepfreeze.state.keras_objects import optimizer_variables
from deepfreeze.store.run import Run
from deepfreeze.thaw.rank_records import read_records
from tests.support import kerases, trainings
from tests.support.refusals import assert_four_parts

pytestmark = pytest.mark.tensorflow


class Reader:
    """An input that knows where it is."""

    def __init__(self):
        self.position, self.seen = 0, np.zeros(3)

    def state_dict(self):
        return {"position": self.position, "seen": self.seen}

    def load_state_dict(self, state):
        self.position, self.seen = state["position"], state["seen"]


class Draw(keras3.callbacks.Callback):
    """Uses every generator of the process in every batch, and notes what it drew."""

    def __init__(self, reader=None):
        super().__init__()
        self.drawn, self.reader = [], reader

    def on_train_batch_begin(self, batch, logs=None):
        numbers = [random.random(), np.random.random(), float(tf.random.get_global_generator().uniform(()))]
        numbers.append(float(tf.random.uniform(())))  # by tf.random.set_seed alone
        if not kerases.KERAS_IS_2:  # Keras 3 has a generator of its own
            numbers.append(float(keras3.random.uniform(())))
        self.drawn.append(numbers)
        if self.reader is not None:
            self.reader.position += 1
            self.reader.seen = self.reader.seen + numbers[0]


def model():
    keras3.utils.set_random_seed(1)
    layers = keras3.layers
    stack = [layers.GaussianNoise(0.1), layers.Dense(8, "relu"), layers.Dropout(0.5), layers.Dense(1)]
    made = keras3.Sequential([keras3.Input((trainings.FEATURES,)), *stack])
    made.compile("adam", "mse", jit_compile=False)
    return made


@pytest.fixture
def seeds_are_variables():
    """Keras 2's layers draw inside of TensorFlow's kernels unless they are told to use variables."""
    if not kerases.KERAS_IS_2:
        yield
        return
    keras3.backend.experimental.enable_tf_random_generator()
    yield
    keras3.backend.experimental.disable_tf_random_generator()


def reseed(seed):
    keras3.utils.set_random_seed(seed)
    tf.random.set_global_generator(tf.random.Generator.from_seed(seed))


@pytest.mark.parametrize("per_execution", [1, 2])
def test_a_resumed_run_with_dropout_and_noise_equals_an_uninterrupted_one(per_execution, seeds_are_variables, tmp_path):
    def make():
        made = model()
        made.compile("adam", "mse", jit_compile=False, steps_per_execution=per_execution)
        return made

    whole, whole_draw = make(), Draw()
    reseed(7)
    whole.fit(trainings.data(8), verbose=0, shuffle=False, callbacks=[whole_draw])

    first, draw = make(), Draw()
    reseed(7)
    options = {"every": 2, "rng": "all"}
    callbacks = [draw, deepfreeze.Checkpoint(tmp_path / "run", **options)]
    first.fit(trainings.data(8).take(4), verbose=0, shuffle=False, callbacks=callbacks)

    second, again = make(), Draw()
    reseed(99)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", **options)
    start = checkpoint.open(second)
    assert start == 4
    second.fit(trainings.data(8).skip(start), verbose=0, shuffle=False, callbacks=[again, checkpoint])
    assert draw.drawn + again.drawn == whole_draw.drawn
    for mine, theirs in zip(second.variables, whole.variables, strict=True):
        assert np.array_equal(mine, theirs)


def pictures():
    """Sixteen small ones, and a number for each."""
    rng = np.random.default_rng(0)
    return rng.random((16, 8, 8, 3), np.float32), rng.random((16, 1), np.float32)


def augmenting(keras):
    """Flips, turns, moves and shades its pictures."""
    layers = keras.layers
    changes = [
        layers.RandomFlip(),
        layers.RandomRotation(0.2),
        layers.RandomTranslation(0.2, 0.2),
        layers.RandomContrast(0.3),
    ]
    model = keras.Sequential([keras.Input((8, 8, 3)), *changes, layers.Flatten(), layers.Dense(1)])
    model.compile("adam", "mse", jit_compile=False)
    return model


def in_order(keras, model, begin, end, callbacks):
    """Always the same batches."""
    batches = tf.data.Dataset.from_tensor_slices(pictures()).batch(2).repeat()
    model.fit(batches.skip(begin).take(end - begin), verbose=0, callbacks=callbacks)


def shuffled_by_dataset(keras, model, begin, end, callbacks):
    """An order for each epoch, by its number: no state but the step."""

    def epoch(number):
        pairs = tf.data.Dataset.from_tensor_slices(pictures())
        return pairs.shuffle(16, seed=number, reshuffle_each_iteration=False).batch(2)

    batches = tf.data.Dataset.range(3).flat_map(epoch)
    # The size of what is flattened is unknown; so Keras need not look for its end.
    model.fit(batches.skip(begin), steps_per_epoch=end - begin, verbose=0, callbacks=callbacks)


def shuffled_by_numpy(keras, model, begin, end, callbacks):
    """An order for each epoch, by numpy's generator."""
    x, y = pictures()
    for epoch in range(begin // 8, end // 8):
        order = np.random.permutation(len(x))
        fitting = {"batch_size": 2, "shuffle": False, "initial_epoch": epoch, "epochs": epoch + 1}
        model.fit(x[order], y[order], verbose=0, callbacks=callbacks, **fitting)


def shuffled_by_fit(keras, model, begin, end, callbacks):
    """Arrays, by ``shuffle=True``, in a fit for each epoch."""
    x, y = pictures()
    for epoch in range(begin // 8, end // 8):
        fitting = {"batch_size": 2, "shuffle": True, "initial_epoch": epoch, "epochs": epoch + 1}
        model.fit(x, y, verbose=0, callbacks=callbacks, **fitting)


# What trains, and how many steps it has done when it is interrupted.
WAYS = {
    "in_order": (in_order, 5),
    "by_dataset": (shuffled_by_dataset, 11),
    "by_numpy": (shuffled_by_numpy, 8),
    "by_fit": (shuffled_by_fit, 8),
}


# The Kerases augment, and shuffle in fit, by generators of their own.
@kerases.cases(WAYS, both=("in_order",), often=("by_fit",), name="way")
def test_a_resumed_run_that_augments_and_shuffles_equals_a_whole_one(keras, way, tmp_path):
    """A resumed run that augments and shuffles equals an uninterrupted one."""
    train, at = WAYS[way]

    def begin(seed):
        keras.utils.set_random_seed(seed)
        tf.random.set_global_generator(tf.random.Generator.from_seed(seed))
        return augmenting(keras)

    whole = begin(7)
    train(keras, whole, 0, 24, [])
    options = {"every": 100, "rng": "all"}
    train(keras, begin(7), 0, at, [deepfreeze.Checkpoint(tmp_path / "run", **options)])
    resumed, checkpoint = begin(99), deepfreeze.Checkpoint(tmp_path / "run", **options)
    start = checkpoint.open(resumed)
    assert start == at
    train(keras, resumed, start, 24, [checkpoint])
    for mine, theirs in zip(resumed.get_weights(), whole.get_weights(), strict=True):
        assert np.array_equal(mine, theirs)
    slots = [optimizer_variables(model.optimizer) for model in (resumed, whole)]
    for mine, theirs in zip(*slots, strict=True):
        assert np.array_equal(mine, theirs)


def test_objects_get_their_states_back(tmp_path):
    reader = Reader()
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, extra={"reader": reader})
    made = trainings.dense(keras3)
    made.fit(trainings.data(5), verbose=0, shuffle=False, callbacks=[Draw(reader), checkpoint])
    assert reader.position == 5
    fresh = Reader()
    again = deepfreeze.Checkpoint(tmp_path / "run", every=2, extra={"reader": fresh})
    assert again.open(trainings.dense(keras3)) == 5
    again.close()
    assert fresh.position == 5 and np.array_equal(fresh.seen, reader.seen)


def test_the_state_is_that_of_the_step_not_of_the_end(tmp_path):
    reader = Reader()
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=9, final=False, extra={"reader": reader})
    trainings.dense(keras3).fit(trainings.data(5), verbose=0, shuffle=False, callbacks=[Draw(reader), checkpoint])
    fresh = Reader()
    again = deepfreeze.Checkpoint(tmp_path / "run", every=2, extra={"reader": fresh})
    again.open(trainings.dense(keras3))
    again.close()
    assert fresh.position == 4


def test_a_checkpoint_without_extras_leaves_them_as_they_are_and_says_so(tmp_path, caplog):
    made = trainings.dense(keras3)
    made.fit(trainings.data(2), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=2)])
    reader = Reader()
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", extra={"reader": reader})
    assert checkpoint.open(trainings.dense(keras3)) == 2
    checkpoint.close()
    assert reader.position == 0 and "no extra states" in caplog.text


def test_a_checkpoint_with_extras_is_resumed_without(tmp_path):
    options = {"every": 2, "extra": {"reader": Reader()}, "rng": "all"}
    trainings.dense(keras3).fit(
        trainings.data(2), verbose=0, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", **options)]
    )
    again = trainings.dense(keras3)
    deepfreeze.restore(again, tmp_path / "run")
    again.load_weights(deepfreeze.latest(tmp_path / "run").path / "model.weights.h5")


def test_an_object_without_the_two_methods_is_refused(tmp_path):
    with pytest.raises(deepfreeze.OptionError, match=r"extra\['it'\]"):
        deepfreeze.Checkpoint(tmp_path / "run", extra={"it": object()})


def test_a_state_that_can_not_be_kept_is_named_and_nothing_is_written(tmp_path):
    class Bad(Reader):
        """Would need pickle."""

        def state_dict(self):
            return {"file": open}

    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, extra={"bad": Bad()})
    with pytest.raises(deepfreeze.OptionError, match=r"extra\['objects'\]\['bad'\]\['file'\]"):
        trainings.dense(keras3).fit(trainings.data(2), verbose=0, callbacks=[checkpoint])
    assert deepfreeze.checkpoints(tmp_path / "run") == []


@pytest.mark.parametrize("where", ["/dev/shm", *(pytest.param(one, marks=pytest.mark.full) for one in ("disk", None))])
def test_a_state_may_have_another_size_at_each_checkpoint(tmp_path, where):
    """It grows far beyond its first size, and shrinks; on a local tier that is memory the slots are what captures are put into."""
    sizes = [10, 10_000, 5, 300_000, 0, 40_000]

    class Changing(Reader):
        """Remembers more or less."""

        def state_dict(self):
            return {"all": np.full(sizes[self.position % len(sizes)], self.position)}

        def load_state_dict(self, state):
            self.seen = state["all"]

    local = None if where is None else tmp_path / "local"
    if where == "/dev/shm":
        local = tempfile.mkdtemp(prefix="deepfreeze-test-", dir=where)
    elif local is not None:
        local.mkdir()
    try:
        reader = Changing()
        options = {"every": 1, "extra": {"changing": reader}, "rng": "all", "keep": 9, "local": local}
        checkpoint = deepfreeze.Checkpoint(tmp_path / "run", **options)
        trainings.dense(keras3).fit(trainings.data(5), verbose=0, shuffle=False, callbacks=[Draw(reader), checkpoint])
        run = Run.open(tmp_path / "run")
        for step in range(1, 6):
            (record,) = read_records(run, run.manifest(step))
            states = state_tree.decode(record.values["attachments"], run)["objects"]
            assert states["changing"]["all"].tolist() == [step] * sizes[step]
        again = deepfreeze.Checkpoint(tmp_path / "run", extra={"changing": (fresh := Changing())})
        assert again.open(trainings.dense(keras3)) == 5
        again.close()
        assert fresh.seen.tolist() == [5] * sizes[5]
    finally:
        if where == "/dev/shm":
            shutil.rmtree(local)


def test_an_object_may_give_the_state_of_a_step(tmp_path):
    class Knowing(Reader):
        """Reads ahead, and knows where it was."""

        def state_at(self, step):
            return {"position": step, "seen": np.zeros(1)}

    fresh = Knowing()
    options = {"every": 2, "final": False}
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", extra={"reader": Knowing()}, **options)
    trainings.dense(keras3).fit(trainings.data(5), verbose=0, shuffle=False, callbacks=[checkpoint])
    again = deepfreeze.Checkpoint(tmp_path / "run", extra={"reader": fresh}, **options)
    assert again.open(trainings.dense(keras3)) == 4 == fresh.position
    again.close()


@pytest.mark.parametrize("late", ["too large", pytest.param("no plain value", marks=pytest.mark.full)])
def test_a_state_that_can_no_longer_be_kept_fails_that_checkpoint(tmp_path, late):
    class Growing(Reader):
        """Its state can be kept for two steps."""

        def state_dict(self):
            if self.position < 3:
                return {}
            return {"all": bytes(193 << 20) if late == "too large" else open}

    reader = Growing()
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, extra={"growing": reader})
    with pytest.raises(deepfreeze.EngineError, match=r"at most 201326592 bytes|found a builtin_function"):
        trainings.dense(keras3).fit(trainings.data(9), verbose=0, callbacks=[Draw(reader), checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [1, 2]


class Closing(Reader):
    """Gives no state at its fourth step, or from its beginning on."""

    def __init__(self, never=False):
        super().__init__()
        self.never = never

    def state_dict(self):
        if self.never or self.position == 4:
            raise OSError("the reader is closed")
        return super().state_dict()


CLOSED = r"extra\['it'\]: expected its state from state_dict\(\); found OSError: the reader is closed. Mend"


def test_an_object_that_raises_fails_that_checkpoint_and_no_other(tmp_path):
    reader = Closing()
    options = {"every": 2, "keep": 9, "extra": {"it": reader}, "on_error": "warn"}
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", **options)
    with pytest.warns(deepfreeze.CheckpointWarning, match=CLOSED) as caught:
        trainings.dense(keras3).fit(trainings.data(6), verbose=0, callbacks=[Draw(reader), checkpoint])
    assert len([one for one in caught if one.category is deepfreeze.CheckpointWarning]) == 1
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 6]


@pytest.mark.full
def test_an_object_that_raises_ends_the_training_with_its_reason(tmp_path):
    reader = Closing()
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, extra={"it": reader})
    with pytest.raises(deepfreeze.EngineError, match=CLOSED):
        trainings.dense(keras3).fit(trainings.data(6), verbose=0, callbacks=[Draw(reader), checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2]
    checkpoint = deepfreeze.Checkpoint(tmp_path / "other", every=2, extra={"it": Closing(never=True)})
    with pytest.raises(deepfreeze.OptionError, match=CLOSED):
        trainings.dense(keras3).fit(trainings.data(6), verbose=0, callbacks=[checkpoint])


def test_states_too_large_for_a_record_are_refused_beforehand(tmp_path):
    """States too large for a record are refused before anything is written."""

    class Large(Reader):
        def state_dict(self):
            return {"all": bytes(257 << 20)}

    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, extra={"large": Large()})
    with pytest.raises(deepfreeze.OptionError) as caught:
        trainings.dense(keras3).fit(trainings.data(3), verbose=0, callbacks=[checkpoint])
    assert_four_parts(
        caught.value, where="extra=", expected=f"at most {192 << 20} bytes", found="bytes", todo="of its own"
    )
    assert not list((tmp_path / "run").glob("step-*"))


def test_a_new_rank_gets_generators_of_its_own(tmp_path):
    from deepfreeze.frameworks.tensorflow.generators import ProcessGenerators
    from deepfreeze.state.attachments import Attachments, SavedAttachments

    reseed(3)
    extras = Attachments(None, ProcessGenerators())
    saved = SavedAttachments({0: extras.take(1)}, 1, "record")
    reseed(4)
    other = SavedAttachments({0: extras.take(1)}, 1, "record")

    def draws(rank, saved=saved):
        extras.load(saved, rank, rank + 1)
        of_tensorflow = tf.random.get_global_generator().uniform(()), tf.random.uniform(())
        return random.random(), np.random.random(), *map(float, of_tensorflow)

    assert draws(0) == draws(0) and draws(5) == draws(5)
    several = [draws(rank) for rank in (0, 4, 5)]
    several.append(draws(5, other))  # of a job with other states
    assert all(len(set(kind)) == 4 for kind in zip(*several, strict=True))


@pytest.mark.parametrize(("rank", "world", "told"), [(0, 2, True), (1, 2, False), (0, 4, False), (0, 5, False)])
def test_states_that_nobody_takes_are_named_once_by_rank_0(caplog, rank, world, told):
    from deepfreeze.state.attachments import Attachments, SavedAttachments
    from deepfreeze.training.model_values import ModelValues

    attachments = Attachments({"reader": Reader()}, None)
    saved = SavedAttachments(dict.fromkeys(range(4), attachments.take(40)), 4, "records")
    values = ModelValues("run", None, None, attachments, types.SimpleNamespace(rank=rank, size=world), to_logger)
    info = types.SimpleNamespace(world_size=4, step=40)
    values._load_attachments(types.SimpleNamespace(attachments=saved, info=info))
    message = "extra['reader']: nobody takes the states that ranks 2 to 3 of the job that wrote step 40 have saved."
    assert [message in found for found in caplog.messages] == [True] * told
