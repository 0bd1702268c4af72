"""The shards come from inside the graph: one copy into the engine's memory, or none where TensorFlow keeps them."""

import numpy as np
import pytest

import deepfreeze
import veloc_bindings
from tests.support import h5

pytestmark = pytest.mark.tensorflow


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
        original = veloc_bindings.EmbeddedEngine.submit

        def submit(engine, step, regions, *args, **kwargs):
            self.regions.append(np.array(regions))
            return original(engine, step, regions, *args, **kwargs)

        monkeypatch.setattr(veloc_bindings.EmbeddedEngine, "submit", submit)


@pytest.mark.parametrize("capture", ["auto", "graph"])
def test_no_full_variable_is_fetched_while_steps_are_captured(keras, tmp_path, monkeypatch, capture):
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
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, capture=deepfreeze.Capture(path=capture))

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
    assert bool(shards) == (capture == "graph"), "the engine's captures are read by the engine alone"
    others = {name for name, size in seen if size > 1 and name != "deepfreeze_shard"}
    assert not others, f"fetched in full: {others}"


def test_captures_by_the_graph_are_read_where_tensorflow_keeps_them(keras, tmp_path, monkeypatch):
    from deepfreeze.frameworks.tensorflow import graph_buffers

    submitted = Submitted(monkeypatch)
    spans = []
    original = graph_buffers.address

    def address(tensor):
        start = np.frombuffer(memoryview(tensor), np.uint8).ctypes.data
        spans.append((start, start + int(tensor.shape[0])))
        return original(tensor)

    monkeypatch.setattr(graph_buffers, "address", address)
    model = make(keras)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, capture=deepfreeze.Capture(path="graph"))
    model.fit(data(4), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert len(submitted.regions) == 2
    for regions in submitted.regions:
        inside = [any(start <= r[0] and r[0] + r[1] <= stop for start, stop in spans) for r in regions]
        # What is in no captured buffer are the file's bytes between the tensors: a few kilobytes.
        assert sum(int(r[1]) for r, yes in zip(regions, inside, strict=True) if not yes) < 64 * 1024
        assert sum(int(r[1]) for r, yes in zip(regions, inside, strict=True) if yes) > 3 * 4 * 700 * 700


@pytest.mark.parametrize("local", ["auto", None])
def test_the_engine_s_memory_is_used_again_and_again(keras, tmp_path, monkeypatch, local):
    submitted = Submitted(monkeypatch)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, local=local)
    make(keras).fit(data(24), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert len(submitted.regions) == 12
    largest = [int(regions[np.argmax(regions[:, 1]), 0]) for regions in submitted.regions]
    assert len(set(largest)) <= 2, "as many places as checkpoints may be in flight"
    assert all(address % 4096 == 0 for address in largest), "aligned, so that they can be written past the page cache"


def test_the_op_reads_tensorflow_s_own_buffer(keras, tmp_path):
    """Captured while TensorFlow holds it: the op is given the variable's address, not a copy's."""
    import tensorflow as tf

    from deepfreeze.frameworks.state_capture import Piece
    from deepfreeze.frameworks.tensorflow import engine_buffers

    assert engine_buffers.reason_against() is None
    variable = tf.Variable(tf.range(1 << 20, dtype=tf.float32))
    buffers = engine_buffers.EngineBuffers()
    group = buffers.add([Piece(variable, 4096, 8192)])
    tf.function(lambda: buffers.write(group), autograph=False)()
    before = variable.read_value()
    captured = buffers.collect()
    assert np.frombuffer(captured.read(0, 4096), np.float32).tolist() == list(range(1024, 2048))
    # Nobody but `before` refers to the buffer, so an update in place would show in it: the op kept nothing.
    address = np.frombuffer(memoryview(before), np.uint8).ctypes.data
    del before
    variable.assign_add(tf.ones_like(variable))
    after = variable.read_value()
    assert np.frombuffer(memoryview(after), np.uint8).ctypes.data == address
    buffers.close()


@pytest.mark.parametrize("capture", ["auto", "graph"])
def test_a_checkpoint_does_not_change_while_training_goes_on(keras, tmp_path, capture):
    model = make(keras)
    saved = {}

    class Keep(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            step = int(model.optimizer.iterations.numpy())
            model.save_weights(tmp_path / f"{step}.weights.h5")
            saved[step] = tmp_path / f"{step}.weights.h5"

    checkpoint = deepfreeze.Checkpoint(
        tmp_path / "run",
        every=1,
        keep=100,
        engine=deepfreeze.Engine(in_flight=4),
        capture=deepfreeze.Capture(path=capture),
    )
    model.fit(data(12), verbose=0, shuffle=False, callbacks=[checkpoint, Keep()])
    found = deepfreeze.checkpoints(tmp_path / "run")
    assert [info.step for info in found] == list(range(1, 13))
    for info in found:
        h5.assert_same(info.path / "model.weights.h5", saved[info.step])


def test_all_that_the_engine_reads_is_held_for_it(keras, tmp_path, monkeypatch):
    """The file's bytes between the tensors too, whatever becomes of the training that made them."""
    from deepfreeze.engine.open_engine import OpenEngine

    loose = []
    original = OpenEngine.submit

    def submit(engine, step, regions, private, hold, values=b""):
        spans = [(view.ctypes.data, view.ctypes.data + view.nbytes) for view in _buffers(hold)]
        loose.extend(row for row in regions if not any(a <= row[0] and row[0] + row[1] <= b for a, b in spans))
        return original(engine, step, regions, private, hold, values)

    monkeypatch.setattr(OpenEngine, "submit", submit)
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, capture=deepfreeze.Capture(path="graph"))
    make(keras).fit(data(4), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert checkpoint.stats.steps == [2, 4]
    assert not loose


def _buffers(hold):
    """The memory of arrays and tensors, in lists and tuples of any depth."""
    if isinstance(hold, (list, tuple)):
        return [view for part in hold for view in _buffers(part)]
    return [np.frombuffer(memoryview(hold), np.uint8)] if np.size(hold) else []
