"""The upper layers can be captured while back-propagation of the lower ones goes on: the graph that TensorFlow runs says so, however
fast its threads and Horovod's are. ``benchmarks/overlap.py`` measures how often it comes about."""

from __future__ import annotations

import pytest

import deepfreeze
from tests.support import kerases

pytestmark = [pytest.mark.tensorflow, pytest.mark.ranks, kerases.needs_keras_3]
LAYERS = 8  # of tests/jobs/graph.py


def ancestors(graph: dict, name: str) -> set[str]:
    """The node and all that it waits for, by data or by control."""
    seen, ahead = set(), [name]
    while ahead:
        one = ahead.pop().lstrip("^").partition(":")[0]
        if one not in seen:
            seen.add(one)
            ahead += graph[one][1]
    return seen


def gradients_by_layer(graph: dict) -> list[tuple[str, set[str], set[str]]]:
    """For each layer of which this rank captures something: the update, and the gradients that it and the capture wait for."""
    captures = {name: inputs for name, (op, inputs) in graph.items() if op == "If"}
    averaged = [inputs for op, inputs in graph.values() if op.startswith("Horovod") and op.endswith("Allreduce")]
    # The control word has an allreduce of its own, of what is no gradient.
    gradients = {name for inputs in averaged for name in inputs if name[0] != "^"}
    gradients = {name for name in gradients if any("MatMul" in one for one in ancestors(graph, name))}
    updates = {name: inputs[0] for name, (op, inputs) in graph.items() if op == "AssignSubVariableOp"}
    assert len(gradients) == len(updates) == LAYERS
    return [
        (update, gradients & ancestors(graph, update), gradients & ancestors(graph, capture))
        for update, variable in updates.items()
        for capture, inputs in captures.items()
        if variable in inputs
    ]


def gradients(two, folder, optimizer, **options) -> list[tuple[str, set[str], set[str]]]:
    """Those of all layers, each on the ranks that save it."""
    graphs = two.run("graph", folder=folder, optimizer=optimizer, **options)
    assert [info.step for info in deepfreeze.checkpoints(folder / "run")] == [1, 2]
    found = [layer for graph in graphs for layer in gradients_by_layer(graph)]
    assert len({update for update, _, _ in found}) == LAYERS
    return found


@pytest.mark.parametrize("capture", ["auto", "graph"])
def test_a_layer_is_captured_without_waiting_for_another_gradient(two, tmp_path, capture):
    """Each capture waits for the gradient that its own update waits for, and for no other."""
    found = gradients(two, tmp_path, {}, path=capture)
    assert all(updated == captured and len(captured) == 1 for _, updated, captured in found), found


def test_a_capture_that_has_to_wait_for_all_gradients_is_seen(two, tmp_path):
    """The gradients' common norm is known when the last gradient is there."""
    found = gradients(two, tmp_path, {"global_clipnorm": 1.0})
    assert {len(captured) for _, _, captured in found} == {LAYERS}
