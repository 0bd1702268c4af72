"""Marks in the train function: where they are, that they change nothing, and that the model has its own function back."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

import veloc_bindings
from deepfreeze.frameworks.tensorflow.step_marks import MarkedStep
from deepfreeze.plan.step import marks
from deepfreeze.state.training_state import TrainingState
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow
BEGIN, END = 3, 8  # batches between which the step is marked


def marking(keras, seen):
    """A callback that marks steps of a training, and notes in ``seen`` what it sees."""

    class Marking(keras.callbacks.Callback):
        """See ``marking``."""

        def on_train_batch_begin(self, batch, logs=None):
            """Puts the marks in, and takes them out."""
            if batch == BEGIN:
                seen["own"] = self.model.train_function
                state = TrainingState.of(self.model, "full")
                seen["tensors"] = state.tensors
                self.marked = MarkedStep(self.model, self.model.optimizer, state.tensors)
            if batch == END:
                seen["places"] = self.marked.places
                self.marked.close()
                self.marked.close()

        def on_train_batch_end(self, batch, logs=None):
            """Takes the notes of the step."""
            if BEGIN <= batch < END:
                seen.setdefault("notes", []).append(self.marked.take())
            seen.setdefault("functions", []).append(self.model.train_function)

    return Marking()


def fit(keras, make, *callbacks):
    model = make()
    model.fit(trainings.data(END + 3), verbose=0, shuffle=False, callbacks=list(callbacks))
    return [np.asarray(value) for value in model.get_weights()]


def clipped(keras):
    """A model whose step writes to one weight again after the optimizer's update."""

    class Clipped(keras.Sequential):
        """See ``clipped``."""

        def train_step(self, *args, **kwargs):
            """Clips the first kernel."""
            logs = super().train_step(*args, **kwargs)
            kernel = self.trainable_variables[0]
            kernel.assign(tf.clip_by_value(tf.convert_to_tensor(kernel), -0.5, 0.5))
            return logs

    return trainings.dense(keras, cls=Clipped)


@kerases.cases(["adam", "sgd", "clipped"], name="step", often=["adam"])
def test_marks_are_where_the_step_uses_and_updates_weights(keras, step):
    seen = {}
    make = (lambda: clipped(keras)) if step == "clipped" else (lambda: trainings.dense(keras, step))
    plain = fit(keras, make)
    marked = fit(keras, make, marking(keras, seen))
    assert all(np.array_equal(one, other) for one, other in zip(plain, marked, strict=True)), "marks change nothing"
    places, tensors = seen["places"], seen["tensors"]
    assert (places[0].name, places[-1].name) == ("the batch", "the end") and len(places) <= marks.MOST
    assert {place.phase for place in places} == {"forward", "backward", "update", "between"}
    written = [number for place in places for number in place.first_writes]
    assert len(written) == len(set(written))
    trained = {
        number for number, tensor in enumerate(tensors) if tensor.spec.role == "replicated" and tensor.spec.shape
    }
    assert trained <= set(written)
    assert set(written) == {number for place in places for number in place.last_writes}
    begun, ended = (
        {number: mark for mark, place in enumerate(places) for number in of(place)}
        for of in (lambda place: place.first_writes, lambda place: place.last_writes)
    )
    assert all(ended[number] > begun[number] for number in written), "an update has two marks"
    notes = seen["notes"][1:]
    for step_notes in notes:
        at = [mark.at_us for mark in step_notes]
        assert min(at) > 0, at
    updates = [number for number, place in enumerate(places) if place.phase == "update"]
    assert all(step_notes[number].cpu_us > 0 for step_notes in notes for number in updates)
    if step == "clipped":
        kernel = next(
            n for n, tensor in enumerate(tensors) if tensor.variable is not None and tensor.spec.shape == (6, 8)
        )
        first, last = (
            next(n for n, place in enumerate(places) if kernel in of(place))
            for of in (lambda place: place.first_writes, lambda place: place.last_writes)
        )
        assert last == len(places) - 1 > first, "when it is clipped is known of the end alone"
    functions = seen["functions"]
    assert functions[-1] is seen["own"], "the model has its own function back, which is not traced again"
    assert functions[BEGIN] is not seen["own"]


@pytest.mark.full
@kerases.one_will_do
def test_a_group_of_updates_is_marked_where_the_first_may_run(keras):
    """The last layer's gradient is there first, so its weights and their momentum are the first ones that may be written to."""
    seen, layers = {}, keras.layers

    def make():
        own = [layers.Dense(4, name=f"layer{number}") for number in range(20)]
        model = keras.Sequential([keras.Input((6,)), *own, layers.Dense(3)])
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
        model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
        return model

    fit(keras, make, marking(keras, seen))
    groups = [place for place in seen["places"] if place.first_writes]
    assert len(groups) < 40, "there are groups of several tensors"

    def layers_of(*names):
        return [int(found[1]) for name in names if (found := re.search(r"layer(\d+)", name))]

    marked, members = [], []
    for place in groups:
        own = layers_of(*(seen["tensors"][number].spec.name for number in place.first_writes))
        first = layers_of(place.name)  # a mark is named after the tensor that it is put at
        assert not own or not first or first == [max(own)], place.name
        members, marked = members + own, marked + first
    assert marked == sorted(marked, reverse=True) and sorted(members) == sorted(4 * [*range(20)])


@kerases.one_will_do
def test_marks_come_in_the_order_of_the_step(keras):
    """In a step of some milliseconds; ops that are ready at once run in any order."""
    seen, layers = {}, keras.layers

    def make():
        model = keras.Sequential([keras.Input((512,)), *(layers.Dense(512, "relu") for _ in range(4)), layers.Dense(1)])
        model.compile("sgd", "mse", jit_compile=False)
        return model

    x, y = np.ones((512, 512), np.float32), np.ones((512, 1), np.float32)
    data = tf.data.Dataset.from_tensors((x, y)).repeat(END + 3)
    make().fit(data, verbose=0, shuffle=False, callbacks=[marking(keras, seen)])
    at = np.median([[mark.at_us for mark in notes] for notes in seen["notes"][1:]], axis=0)
    by_phase = {
        phase: [at[n] for n, place in enumerate(seen["places"]) if place.phase == phase and n]
        for phase in ("forward", "backward", "between")
    }
    assert at[0] < max(by_phase["forward"]) < max(by_phase["backward"]) < by_phase["between"][0] + 1000
    assert by_phase["forward"] == sorted(by_phase["forward"]), "layer by layer"
    assert by_phase["between"][0] > np.median(by_phase["backward"]) > np.median(by_phase["forward"])


@kerases.one_will_do
def test_marks_cost_nothing_that_counts(keras, monkeypatch):
    """Counted, not timed: a marked step has one op more for each mark, and no op of the step waits for a mark. A step without marks is the
    function that it was before, as the test above asserts."""
    traced, add = [], MarkedStep._mark

    def look(self, graph, batch, begin):
        before = graph.get_operations()
        add(self, graph, batch, begin)
        traced.append((graph, before))

    monkeypatch.setattr(MarkedStep, "_mark", look)
    seen = {}
    fit(keras, lambda: trainings.dense(keras), marking(keras, seen))
    ((graph, before),) = traced
    own = {op.name for op in before}
    mine = [op for op in graph.get_operations() if op.type == "StatefulPartitionedCall" and op.name not in own]
    assert len(mine) == len(seen["places"]) <= marks.MOST
    calls = {op.name for op in mine}
    for op in graph.get_operations():
        waits = {control.name for control in op.control_inputs} & calls
        assert not waits or op.name not in own, f"{op.name} ({op.type}) waits for a mark"
        assert not waits or op.name not in calls, "marks wait for each other"


def test_an_area_has_the_marks_that_it_was_given():
    area = veloc_bindings.Area()
    area.marks(2)
    area.mark(1)
    area.mark(7)
    none, one = area.marked(2)
    assert none.at_us == 0 < one.at_us and one.external_bytes == one.local_bytes == one.external_us == one.local_us == 0
    with pytest.raises(veloc_bindings.EngineFault, match="has 2 marks"):
        area.marked(3)
    with pytest.raises(veloc_bindings.EngineFault, match="at most 4096"):
        area.marks(4097)
    area.close()
