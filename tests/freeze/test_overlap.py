"""The upper layers can be captured while back-propagation of the lower ones goes on: the graph that TensorFlow runs says so, however
fast its threads and Horovod's are. ``benchmarks/overlap.py`` measures how often it comes about."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support import kerases

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, kerases.needs_keras_3]
LAYERS = 8


@pytest.fixture
def stack(monkeypatch):
    """Makes equal layers under a DistributedOptimizer whose gradients go through Horovod's own op, though there is one rank."""
    import horovod.tensorflow as hvd
    import keras

    from deepfreeze import distributed

    hvd.init()
    two = SimpleNamespace(size=lambda: 2, allreduce=hvd.allreduce, Average=hvd.Average)
    monkeypatch.setattr(distributed, "_horovod", lambda where: two)

    def make(**options):
        layers = [keras.layers.Dense(64, use_bias=False) for _ in range(LAYERS)]
        model = keras.Sequential([keras.Input((64,)), *layers])
        model.compile(distributed.DistributedOptimizer(keras.optimizers.SGD(0.1, **options)), "mse", jit_compile=False)
        return model

    return make


def graph_that_runs(model, run, **options) -> dict:
    """The nodes of the train function by name, functions inlined and everything optimised. (As it is traced, Keras passes all
    gradients through one op, which TensorFlow takes apart.)"""
    import keras
    import numpy as np
    from tensorflow.python.eager import context

    import deepfreeze

    class Metadata(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            context.enable_run_metadata()

        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:
                self.graphs = context.export_run_metadata().function_graphs
                context.disable_run_metadata()

    metadata = Metadata()
    data = np.ones((2, 64), np.float32)
    callbacks = [deepfreeze.Checkpoint(run, every=1, local=None, **options), metadata]
    model.fit(data, data, batch_size=1, verbose=0, callbacks=callbacks)
    assert [info.step for info in deepfreeze.checkpoints(run)] == [1, 2]

    parts = [part for graphs in metadata.graphs for part in graphs.partition_graphs]
    (graph,) = [part for part in parts if any(is_allreduce(node) for node in part.node)]
    return {node.name: node for node in graph.node}


def is_allreduce(node) -> bool:
    return node.op.startswith("Horovod") and node.op.endswith("Allreduce")


def ancestors(nodes: dict, name: str) -> set[str]:
    """The node and all that it waits for, by data or by control."""
    seen, ahead = set(), [name]
    while ahead:
        one = ahead.pop().lstrip("^").partition(":")[0]
        if one not in seen:
            seen.add(one)
            ahead += nodes[one].input
    return seen


def gradients_by_layer(nodes: dict) -> list[tuple[set[str], set[str]]]:
    """For each layer: the gradients that its update waits for, and those that its capture waits for."""
    captures = [node for node in nodes.values() if node.op == "If"]
    gradients = {name for node in nodes.values() if is_allreduce(node) for name in node.input if name[0] != "^"}
    assert len(gradients) == LAYERS
    found = []
    for update in nodes.values():
        if update.op == "AssignSubVariableOp":
            (capture,) = [node for node in captures if update.input[0] in node.input]
            found.append(tuple(gradients & ancestors(nodes, name) for name in (update.name, capture.name)))
    assert len(found) == LAYERS
    return found


@pytest.mark.parametrize("capture", ["auto", "graph"])
def test_a_layer_is_captured_without_waiting_for_another_gradient(stack, library, tmp_path, capture):
    found = gradients_by_layer(graph_that_runs(stack(), tmp_path / "run", capture=capture))
    assert all(updated == captured and len(captured) == 1 for updated, captured in found), found


def test_a_capture_that_has_to_wait_for_all_gradients_is_seen(stack, library, tmp_path):
    """Their common norm is known when the last one is there."""
    found = gradients_by_layer(graph_that_runs(stack(global_clipnorm=1.0), tmp_path / "run"))
    assert {len(captured) for _, captured in found} == {LAYERS}
