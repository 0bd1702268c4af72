"""A second ``fit`` of one model: the captures stay in the model's graph, so nothing is traced or probed again; the run, the engine and
its memory are given back in between."""

import contextlib
import copy
import gc
import os
import tempfile
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.freeze import agreed_structure
from deepfreeze.store.lock import Lock
from deepfreeze.training.installation import Installation
from tests.support import h5, kerases, trainings

pytestmark = pytest.mark.tensorflow

HOOKS = {"apply", "apply_gradients", "make_train_function", "train_step"}


class Traced(keras.Sequential):
    """Counts how often its train step is traced."""

    traces = 0

    def train_step(self, *args, **kwargs):
        self.traces += 1
        return super().train_step(*args, **kwargs)


def counted():
    model = trainings.dense(keras, cls=Traced)
    model.optimizer.build(model.trainable_variables)  # else one more trace, which builds it for what train_step trains
    return model


def fit(model, checkpoint, steps, **options):
    model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=[checkpoint], **options)


def saved(run):
    return [info.step for info in deepfreeze.checkpoints(run)]


def assert_newest_is(model, run, tmp_path):
    model.save_weights(tmp_path / "stock.weights.h5")
    h5.assert_same(deepfreeze.latest(run).path / "model.weights.h5", tmp_path / "stock.weights.h5")


@pytest.mark.parametrize("capture", ["auto", "graph"])
def test_a_second_fit_is_not_traced_again(tmp_path, monkeypatch, capture):
    probes, locate = [], agreed_structure.locate
    monkeypatch.setattr(agreed_structure, "locate", lambda state: probes.append(1) or locate(state))
    model, run = counted(), tmp_path / "run"
    checkpoint = deepfreeze.Checkpoint(run, every=3, keep=10, capture=deepfreeze.Capture(path=capture))
    fit(model, checkpoint, 4)
    first = model.traces
    fit(model, checkpoint, 4)
    fit(model, checkpoint, 1)
    assert model.traces == first and len(probes) == 1
    assert saved(run) == [3, 4, 6, 8, 9]
    assert_newest_is(model, run, tmp_path)


@pytest.mark.parametrize("capture", ["auto", "graph"])
def test_a_second_fit_that_saves_nothing_is_not_traced_again(tmp_path, monkeypatch, capture):
    """No checkpoint is due in either ``fit``, nor at its end."""
    probes, locate = [], agreed_structure.locate
    monkeypatch.setattr(agreed_structure, "locate", lambda state: probes.append(1) or locate(state))
    model, run = counted(), tmp_path / "run"
    checkpoint = deepfreeze.Checkpoint(run, every=10**6, final=False, capture=deepfreeze.Capture(path=capture))
    fit(model, checkpoint, 4)
    first = model.traces
    fit(model, checkpoint, 4)
    fit(model, checkpoint, 1)
    assert model.traces == first and len(probes) == 1
    assert int(model.optimizer.iterations.numpy()) == 9 and saved(run) == []


def test_a_new_checkpoint_of_the_same_model_takes_the_captures_over(tmp_path):
    model = counted()
    fit(model, deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=10), 3)
    first = model.traces
    fit(model, deepfreeze.Checkpoint(tmp_path / "run", every=4, keep=10), 3)
    assert model.traces == first and saved(tmp_path / "run") == [2, 3, 4, 6]
    assert_newest_is(model, tmp_path / "run", tmp_path)


def test_between_two_fits_the_run_and_the_engine_are_free(tmp_path):
    model, checkpoint = counted(), deepfreeze.Checkpoint(tmp_path / "run", every=2)
    before = threads()
    for _ in range(2):
        fit(model, checkpoint, 3)
        Lock.acquire(tmp_path / "run").release()
        assert threads() <= before
    model.fit(trainings.data(2), verbose=0)  # without the callback: nothing is captured
    fit(model, checkpoint, 3)
    assert saved(tmp_path / "run") == [10, 11]
    assert_newest_is(model, tmp_path / "run", tmp_path)


def test_a_cell_that_is_run_twice_resumes(tmp_path):
    """Both times a new model and a new Checkpoint; the first ones live on, as a notebook's variables may."""
    cells = []
    for _ in range(2):
        model, checkpoint = counted(), deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=10)
        fit(model, checkpoint, 4)
        cells.append((model, checkpoint))
    assert [checkpoint.stats.resumed for _, checkpoint in cells] == [None, 4]
    assert saved(tmp_path / "run") == [2, 4, 6, 8]
    first, checkpoint = cells[0]
    with pytest.raises(deepfreeze.RunError, match="another job has committed"):
        fit(first, checkpoint, 1)
    assert saved(tmp_path / "run") == [2, 4, 6, 8], "nothing was moved away"


def test_an_older_step_is_captured_again_with_all_its_tensors(tmp_path):
    """The step was captured in the first fit; its number comes again."""
    model, run = (
        keras.Sequential([keras.Input((6,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]),
        tmp_path / "run",
    )
    model.compile("adam", "mse", jit_compile=False)
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=10)
    fit(model, checkpoint, 4)
    deepfreeze.restore(model, run, step=2)
    for variable in model.non_trainable_variables:
        variable.assign(variable + 1)
    fit(model, checkpoint, 2)
    assert saved(run) == [2, 4]
    assert_newest_is(model, run, tmp_path)


def changed_metrics(model):
    model.compile(model.optimizer, "mse", metrics=["mae"], jit_compile=False)


def frozen_layer(model):
    model.layers[0].trainable = False
    model.compile(model.optimizer, "mse", jit_compile=False)


def own_train_step(model):
    inner = type(model).train_step.__get__(model)
    model.train_step = lambda *args, **kwargs: inner(*args, **kwargs)


@pytest.mark.parametrize("change", [changed_metrics, frozen_layer, own_train_step])
def test_a_model_that_was_changed_in_between_is_captured_as_it_is(tmp_path, change):
    model, run = counted(), tmp_path / "run"
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=10)
    fit(model, checkpoint, 4)
    change(model)
    fit(model, checkpoint, 4)
    assert saved(run)[-1] == int(model.optimizer.iterations.numpy())
    assert_newest_is(model, run, tmp_path)


def test_an_interrupted_fit_leaves_the_captures_to_the_next(tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                raise KeyboardInterrupt

    model, checkpoint = counted(), deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=10)
    with pytest.raises(KeyboardInterrupt):
        model.fit(trainings.data(9), verbose=0, callbacks=[checkpoint, Interrupt()])
    first = model.traces
    fit(model, checkpoint, 2)
    assert model.traces == first
    assert_newest_is(model, tmp_path / "run", tmp_path)


def test_two_checkpoints_of_one_fit_keep_their_captures(tmp_path):
    model = counted()
    both = [deepfreeze.Checkpoint(tmp_path / name, every=2, keep=10, state=name) for name in ("full", "weights")]
    for checkpoints in (both, both, both[1:]):
        model.fit(trainings.data(3), verbose=0, shuffle=False, callbacks=checkpoints)
    assert model.traces == 1
    assert saved(tmp_path / "full") == [2, 3, 4, 6] and saved(tmp_path / "weights") == [2, 3, 4, 6, 8, 9]
    for checkpoint in both:
        checkpoint.close()
    assert not HOOKS & {*vars(model), *vars(model.optimizer)}


@pytest.mark.full
def test_captures_that_a_new_trace_left_out_serve_no_more(tmp_path):
    model = counted()
    both = [deepfreeze.Checkpoint(tmp_path / name, every=2, keep=10, state=name) for name in ("full", "weights")]
    third = deepfreeze.Checkpoint(
        tmp_path / "third", every=2, keep=10, capture=deepfreeze.Capture(placement="contiguous")
    )
    model.fit(trainings.data(1), verbose=0, callbacks=both)
    for checkpoint in (third, third, *both):
        fit(model, checkpoint, 1)
    assert model.traces == 4
    assert saved(tmp_path / "third") == [2, 3] and saved(tmp_path / "full") == [1, 4]
    assert saved(tmp_path / "weights") == [1, 5]


@pytest.mark.full
def test_what_is_traced_without_a_checkpoint_has_no_captures(tmp_path):
    """XLA compiles none of our ops; and rank 0 may go on alone, where an allreduce would wait for ever."""
    model, checkpoint = counted(), deepfreeze.Checkpoint(tmp_path / "run", every=2, keep=10)
    fit(model, checkpoint, 3)
    model.compile(model.optimizer, "mse", jit_compile=True)
    model.fit(trainings.data(2), verbose=0)
    fit(model, checkpoint, 2)
    assert saved(tmp_path / "run") == [2, 3, 6, 7]
    assert_newest_is(model, tmp_path / "run", tmp_path)


def test_another_shape_that_is_traced_without_a_checkpoint_is_captured(tmp_path):
    model, checkpoint = counted(), deepfreeze.Checkpoint(tmp_path / "run", every=1, keep=10)
    fit(model, checkpoint, 2)
    x, y = np.ones((4, trainings.FEATURES), np.float64), np.ones((4, 1), np.float64)
    model.fit(x, y, batch_size=4, verbose=0)
    model.fit(x, y, batch_size=4, verbose=0, callbacks=[checkpoint])
    assert saved(tmp_path / "run") == [1, 2, 4]
    assert_newest_is(model, tmp_path / "run", tmp_path)


@pytest.mark.full
def test_a_forgotten_training_rests_also_while_a_function_is_traced(tmp_path):
    """The garbage collector finds it at any time."""
    model, checkpoint = counted(), deepfreeze.Checkpoint(tmp_path / "run", every=1)
    fit(model, checkpoint, 1)
    (installation,) = vars(model)["_deepfreeze_installations"]
    installation.capture.arm(7)
    traced = tf.function(lambda: installation.capture.rest()).get_concrete_function()
    assert not traced.graph.get_operations()


@pytest.mark.full
def test_the_former_checkpoint_closes_no_captures_that_the_next_one_uses(tmp_path):
    model, former = counted(), deepfreeze.Checkpoint(tmp_path / "a", every=2)
    fit(model, former, 2)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "b", every=2, keep=10)
    close = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: former.close())
    model.fit(trainings.data(5), verbose=0, callbacks=[close, checkpoint])
    assert saved(tmp_path / "b") == [4, 6, 7]


def test_a_fit_without_a_step_saves_nothing(tmp_path):
    model, run = counted(), tmp_path / "run"
    fit(model, deepfreeze.Checkpoint(run, every=2, keep=10), 3)
    before = deepfreeze.latest(run).path.stat().st_ino
    fit(model, deepfreeze.Checkpoint(run, every=2, keep=10), 3, epochs=1, initial_epoch=1)
    fit(model, deepfreeze.Checkpoint(tmp_path / "other"), 3, epochs=1, initial_epoch=1)
    assert saved(run) == [2, 3] and deepfreeze.latest(run).path.stat().st_ino == before, "not written again"
    assert not saved(tmp_path / "other")


def test_close_takes_the_captures_out_of_the_model(tmp_path):
    model, checkpoint = counted(), deepfreeze.Checkpoint(tmp_path / "run", every=2)
    fit(model, checkpoint, 2)
    assert "train_step" in vars(model)
    checkpoint.close()
    assert not HOOKS & {*vars(model), *vars(model.optimizer)}
    fit(model, checkpoint, 2)
    assert_newest_is(model, tmp_path / "run", tmp_path)


def test_attachments_may_grow_between_two_fits(tmp_path):
    class Log:
        def __init__(self):
            self.text = ""

        def state_dict(self):
            return {"text": self.text}

        def load_state_dict(self, state):
            self.text = state["text"]

    model, log = counted(), Log()
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, extra={"log": log})
    fit(model, checkpoint, 2)
    log.text = "x" * 1_000_000
    fit(model, checkpoint, 2)
    other = Log()
    deepfreeze.Checkpoint(tmp_path / "run", extra={"log": other}).open(counted())
    assert other.text == log.text


def threads():
    """The kernel's numbers of the threads of the engine and of DeepFreeze's Python code. TensorFlow's threads come and go."""
    found = {thread.native_id for thread in threading.enumerate() if thread.name.startswith("deepfreeze")}
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            if (task / "comm").read_text().startswith("df-"):
                found.add(int(task.name))
    return found


def taken(local):
    """How many descriptors are open, the threads that DeepFreeze has, and the files on the local tier."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threads(), sorted(local.rglob("*"))


def resident():
    """Bytes of this process's resident memory that no file on a disk backs: its own, and what it has mapped in /dev/shm."""
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return sum(int(status[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))


@pytest.mark.full
@pytest.mark.parametrize("where", ["disk", "memory"])
def test_twenty_models_in_one_process_leave_nothing_behind(where, tmp_path):
    with tempfile.TemporaryDirectory(
        prefix="deepfreeze-test-", dir="/dev/shm" if where == "memory" else tmp_path
    ) as folder:
        local = Path(folder)

        def one(callback):
            model = trainings.dense(keras)
            for _ in range(2):
                fit(model, callback, 2)
            keras.backend.clear_session()

        def grown(callbacks):
            """By how many bytes the resident memory grows with each model that is trained with one of these callbacks."""
            before, number = resident(), 0
            for callback in callbacks:
                one(callback)
                number += 1
            gc.collect()
            return (resident() - before) / number

        def checkpoints(numbers):
            # One after the other: Keras has a callback keep its model.
            return (deepfreeze.Checkpoint(tmp_path / str(n), every=1, local=local) for n in numbers)

        grown([keras.callbacks.Callback()] * 3)
        grown(checkpoints(range(3)))
        # TensorFlow keeps megabytes of each model that Keras has trained. An engine that stayed would keep its writers' blocks besides.
        plain, before = grown([keras.callbacks.Callback()] * 5), taken(local)
        assert grown(checkpoints(range(3, 20))) < plain + 2**20
        assert taken(local) == before
        assert sum(isinstance(thing, Installation) for thing in gc.get_objects()) <= 1


def test_a_copy_of_a_trained_model_trains_by_itself(tmp_path):
    model, checkpoint = trainings.dense(keras), deepfreeze.Checkpoint(tmp_path / "run", every=1)
    fit(model, checkpoint, 2)
    twin = copy.deepcopy(model)
    weights = [np.array(value) for value in model.get_weights()]
    twin.fit(trainings.data(1), verbose=0)
    assert all(np.array_equal(a, b) for a, b in zip(weights, model.get_weights(), strict=True))
    assert saved(tmp_path / "run")[-1] == 2


@kerases.needs_keras_3
def test_a_loop_of_the_same_model_is_probed_once(tmp_path, monkeypatch):
    probes, locate = [], agreed_structure.locate
    monkeypatch.setattr(agreed_structure, "locate", lambda state: probes.append(1) or locate(state))
    model = trainings.dense(keras)
    for _ in range(2):
        with deepfreeze.capture(model.optimizer, model, tmp_path / "run", every=1) as checkpoint:
            for x, y in trainings.data(2):
                model.train_on_batch(x, y)
                checkpoint.step()
    assert len(probes) == 1 and saved(tmp_path / "run") == [3, 4]


def test_a_step_after_the_end_of_a_loop_is_an_error(tmp_path):
    model = trainings.dense(keras)
    with deepfreeze.capture(model.optimizer, model, tmp_path / "run") as checkpoint:
        pass
    with pytest.raises(deepfreeze.RunError, match="not saved any more"):
        checkpoint.step()
