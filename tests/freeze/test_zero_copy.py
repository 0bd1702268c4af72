"""The shards come from inside the graph, and the engine reads them where TensorFlow keeps them."""

import numpy as np
import pytest

import deepfreeze
import veloc_bindings
from tests.support import h5


@pytest.fixture
def keras():
    import keras

    return keras


def make(keras, width=700):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((16,)), keras.layers.Dense(width, "relu"), keras.layers.Dense(width), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", jit_compile=False)
    return model


def data(steps, batch=4):
    import tensorflow as tf

    rng = np.random.default_rng(0)
    x, y = rng.random((steps * batch, 16), np.float32), rng.random((steps * batch, 1), np.float32)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)


class Submitted:
    """Records what the engine is given."""

    def __init__(self, monkeypatch):
        self.regions = []
        original = veloc_bindings.Engine.submit

        def submit(engine, step, regions, *args, **kwargs):
            self.regions.append(np.array(regions))
            return original(engine, step, regions, *args, **kwargs)

        monkeypatch.setattr(veloc_bindings.Engine, "submit", submit)


def test_no_full_variable_is_fetched_while_steps_are_captured(keras, tmp_path, monkeypatch):
    import tensorflow as tf
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

    fetched = []
    for name in ("numpy", "read_value", "value", "__array__"):
        original = getattr(BaseResourceVariable, name)

        def spy(self, *args, original=original, **kwargs):
            if tf.executing_eagerly():
                fetched.append(
                    (
                        self.name.split(":")[0].split("/")[-1],
                        int(np.prod(self.shape.as_list() or [1], dtype=object) or 0)
                        if None not in self.shape.as_list()
                        else 0,
                    )
                )
            return original(self, *args, **kwargs)

        monkeypatch.setattr(BaseResourceVariable, name, spy)
    model = make(keras)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2)

    class Forget(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:  # the first batch opens the engine, which looks at every variable once
                fetched.clear()

        def on_train_end(self, logs=None):
            seen.extend(fetched)

    seen = []
    model.fit(data(9), verbose=0, shuffle=False, callbacks=[checkpoint, Forget()])
    assert checkpoint.stats.steps == [2, 4, 6, 8, 9]
    shards = [name for name, _ in seen if name == "deepfreeze_shard"]
    assert shards, "the captured shards are read"
    others = {name for name, size in seen if size > 1 and name != "deepfreeze_shard"}
    assert not others, f"fetched in full: {others}"


def test_the_engine_is_given_the_addresses_of_tensorflows_own_buffers(keras, tmp_path, monkeypatch):
    from deepfreeze.freeze import shard_ops

    submitted = Submitted(monkeypatch)
    buffers = []
    original = shard_ops.addresses

    def addresses(tensors):
        tensors = list(tensors)
        buffers.append([(np.frombuffer(memoryview(t), np.uint8).ctypes.data, int(t.shape[0])) for t in tensors])
        return original(tensors)

    monkeypatch.setattr("deepfreeze.freeze.shard_ops.addresses", addresses)
    model = make(keras)
    model.fit(data(4), verbose=0, shuffle=False, callbacks=[deepfreeze.Checkpoint(tmp_path / "run", every=2)])
    assert len(submitted.regions) == len(buffers) == 2
    for regions, spans in zip(submitted.regions, buffers, strict=True):
        inside = [any(start <= r[0] and r[0] + r[1] <= start + n for start, n in spans) for r in regions]
        # What is in no captured buffer are the file's bytes between the tensors: a few kilobytes.
        assert sum(int(r[1]) for r, yes in zip(regions, inside, strict=True) if not yes) < 64 * 1024
        assert sum(int(r[1]) for r, yes in zip(regions, inside, strict=True) if yes) > 3 * 4 * 700 * 700


def test_with_one_rank_the_engine_reads_the_variables_own_memory(keras, tmp_path, monkeypatch):
    submitted = Submitted(monkeypatch)
    model = make(keras, width=1500)  # 9 MB: captured by reference
    at = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            kernel = model.layers[1].kernel.value.read_value()
            at.append(np.frombuffer(memoryview(kernel), np.float32).ctypes.data)

    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=3)
    model.fit(data(3), verbose=0, shuffle=False, callbacks=[checkpoint, Look()])
    assert at[-1] in submitted.regions[0][:, 0].tolist()


def test_a_checkpoint_does_not_change_while_training_goes_on(keras, tmp_path):
    model = make(keras)
    saved = {}

    class Keep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            step = int(model.optimizer.iterations.numpy())
            model.save_weights(tmp_path / f"{step}.weights.h5")
            saved[step] = tmp_path / f"{step}.weights.h5"

    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=1, keep=100, in_flight=4)
    model.fit(data(12), verbose=0, shuffle=False, callbacks=[checkpoint, Keep()])
    found = deepfreeze.checkpoints(tmp_path / "run")
    assert [info.step for info in found] == list(range(1, 13))
    for info in found:
        h5.assert_same(info.path / "model.weights.h5", saved[info.step])
