"""Captures that lie in the engine's memory. An op, which the engine registers with TensorFlow, copies TensorFlow's own buffers there.
Imports TensorFlow."""

from __future__ import annotations

import tensorflow as tf

import veloc_bindings
from deepfreeze.engine.faults import EngineFault
from deepfreeze.frameworks.area_buffers import AreaBuffers, variables_of


def reason_against() -> str | None:
    """The reason why this process can't use the op, as text for the log. None if it can. Registers the op in the first call."""
    try:
        veloc_bindings.register_tensorflow()
    except EngineFault as fault:
        return str(fault)
    return None


class EngineBuffers(AreaBuffers):
    """The area to which the op copies. Implements ``buffers.Buffers`` too."""

    def write(self, group: int) -> None:
        """See ``buffers.Buffers``. Adds one op, ``DeepfreezeCapture``."""
        tensors = [variable.read_value() for variable in variables_of(self.groups[group])]
        value = tf.compat.v1.AttrValue
        attributes = {
            "T": value(list=value.ListValue(type=[tensor.dtype.as_datatype_enum for tensor in tensors])),
            "area": value(i=self.area.number),
            "group": value(i=group),
        }
        graph = tf.compat.v1.get_default_graph()
        graph.create_op("DeepfreezeCapture", tensors, [], attrs=attributes, name="deepfreeze_capture")
