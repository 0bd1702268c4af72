"""Late captures: in the captured step a group's op holds the tensors, and at the beginning of the next step another op copies them. Imports
TensorFlow.

TensorFlow never writes into a buffer that is referenced elsewhere. So the tensors that are held have the values of the captured step until
they are copied, whoever writes to the variables meanwhile: the write replaces the variable's buffer, or copies it first.

The copy must wait for nothing, and of the next step only the updates of the group's own variables must wait for the copy, because an
update would otherwise have to copy the variable first. Automatic control dependencies see to both: the copy is a call of a function that
takes the variables' handles and writes to none of them. TensorFlow marks such a call as one that reads. So other reads, those of the
forward pass, do not wait for it, and writes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

import veloc_bindings
from deepfreeze.frameworks.tensorflow.capture_groups import Group
from deepfreeze.frameworks.tensorflow.own_variables import own_variable
from deepfreeze.plan.late_groups import AUTO, LateGroups

# Bytes up to which a variable's update does not wait for the copy: while the variable is held, an update copies that little. The count of
# steps is so small. It must not wait: at the end of data of unknown size Keras begins a step for which there is no batch, and counts
# that step if the count is quicker than the news.
_SMALL = 4096


class LateCapture:
    """The late captures of some groups, which are all captured in one area. The training thread calls all methods: ``step_begins`` and
    ``step_ended`` while Keras traces the train function, the others between two executions."""

    def __init__(self, area: veloc_bindings.Area, groups: Sequence[Group], when: str) -> None:
        """``when``: as in ``plan.late_groups``; ``groups``: those that are captured after the update, in the order of the updates."""
        self._area, self._groups = area, groups
        self._choice = LateGroups(when, len(groups))
        self._late: frozenset[int] = frozenset()  # as the area knows it
        with tf.init_scope(), tf.device("CPU:0"):
            self._pending = own_variable(False, "deepfreeze_pending")
            self._begin = _begin(area) if when == AUTO else None
            self._copies = [_copy(area, group, self._pending) for group in groups]
        self._choose()

    def step_begins(self) -> None:
        """In a graph, at the beginning of ``train_step``: adds the ops that copy what the step before has left."""
        if self._begin is not None:
            self._begin()
        pending = self._pending.read_value()
        for copy in self._copies:
            # One after the other, in the order in which the updates will wait for them: the next step wants the other threads.
            pending = copy(pending)

    def step_ended(self, hit: tf.Tensor) -> None:
        """In a graph, at the end of ``train_step``. ``hit``: whether this step was captured, a bool scalar."""
        self._pending.assign(hit)

    def stay(self, groups: Iterable[Group]) -> None:
        """These groups are not captured late from now on."""
        numbers = {id(group): number for number, group in enumerate(self._groups)}
        self._choice.stay(numbers[id(group)] for group in groups)
        self._choose()

    @property
    def held(self) -> bool:
        """Whether tensors of the last capture are held."""
        return self._area.held() > 0

    def collected(self) -> None:
        """To be called when a capture is collected: chooses the groups of the next one by what this one has shown."""
        self._choice.learn([self._area.note(group.number) for group in self._groups])
        self._choose()

    def _choose(self) -> None:
        for number in self._choice.late ^ self._late:
            self._area.late(self._groups[number].number, number in self._choice.late)
        self._late = self._choice.late


def _begin(area: veloc_bindings.Area) -> Any:
    """The function that tells the area that a step begins."""

    def begin() -> None:
        _op("DeepfreezeStepBegins", area=area.number)

    return tf.function(begin, autograph=False).get_concrete_function()


def _copy(area: veloc_bindings.Area, group: Group, flag: tf.Variable) -> Any:
    """The function that copies what is held of a group if its argument, a bool scalar, is true. It returns the argument when it has.
    ``flag``: the variable that the argument comes from."""

    def copy_held() -> None:
        _op("DeepfreezeCaptureHeld", area=area.number, group=group.number)

    def copy(pending: tf.Tensor) -> tf.Tensor:
        graph = tf.compat.v1.get_default_graph()
        graph.capture(flag.handle)  # for a group of small variables: calls without any handle would wait for each other
        for variable in group.variables:
            if variable.dtype.size * variable.shape.num_elements() > _SMALL:
                graph.capture(variable.handle)
        done = tf.raw_ops.If(cond=pending, input=[], Tout=[], then_branch=then, else_branch=otherwise)
        with tf.control_dependencies([done]):
            return tf.identity(pending)

    then = tf.function(copy_held, autograph=False).get_concrete_function()
    otherwise = tf.function(_nothing, autograph=False).get_concrete_function()
    return tf.function(copy, [tf.TensorSpec((), tf.bool)], autograph=False).get_concrete_function()


def _op(name: str, **attributes: int) -> None:
    values = {key: tf.compat.v1.AttrValue(i=value) for key, value in attributes.items()}
    tf.compat.v1.get_default_graph().create_op(name, [], [], attrs=values)


def _nothing() -> None:
    """The branch of a step that copies nothing."""
