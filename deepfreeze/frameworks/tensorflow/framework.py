"""TensorFlow, as ``frameworks.framework`` has it. Imports TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from deepfreeze.frameworks.framework import Capabilities, Framework
from deepfreeze.frameworks.memory import MakeRoom, numpy_room
from deepfreeze.frameworks.tensorflow import averaging, engine_buffers, first_trace, hooks, refusals, written_variables
from deepfreeze.frameworks.tensorflow.capture import Range, TensorFlowCapture
from deepfreeze.frameworks.tensorflow.engine_buffers import EngineBuffers
from deepfreeze.frameworks.tensorflow.first_trace import FirstTrace
from deepfreeze.frameworks.tensorflow.generators import ProcessGenerators
from deepfreeze.frameworks.tensorflow.graph_buffers import GraphBuffers
from deepfreeze.frameworks.tensorflow.graph_maximum import TensorFlowMaximum
from deepfreeze.frameworks.tensorflow.step_marks import MarkedStep
from deepfreeze.frameworks.tensorflow.steps import Steps
from deepfreeze.frameworks.tensorflow.tensor_memory import room
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.state.training_state import StateTensor, TrainingState


class TensorFlow:
    """Implements ``Framework``. The methods that are set below are functions of this folder; their docstrings are there."""

    capabilities = Capabilities(own_memory=True, marks=True)

    key = staticmethod(tf_variable)
    refuse = staticmethod(refusals.refuse)
    refuse_devices = staticmethod(refusals.refuse_devices)
    layers_to_build = staticmethod(first_trace.layers_to_build)
    begins_with_trace = staticmethod(first_trace.begins_with_trace)
    build_by = staticmethod(first_trace.build_by)
    first_trace = staticmethod(FirstTrace.of)
    trace_anew = staticmethod(hooks.make_anew)
    line_to_average = staticmethod(averaging.line_to_average)
    generators = staticmethod(ProcessGenerators)
    against_engine_memory = staticmethod(engine_buffers.reason_against)
    maximum = staticmethod(TensorFlowMaximum)
    unlisted = staticmethod(written_variables.unlisted)
    marked_step = staticmethod(MarkedStep)

    def value(self, variable: Any) -> np.ndarray:
        """See ``Variables``."""
        tensor = tf_variable(variable).value()
        try:
            return np.asarray(memoryview(tensor))
        except (BufferError, TypeError, ValueError):  # a bfloat16, or a value that is not in host memory
            return np.asarray(tensor)

    def rooms(self) -> MakeRoom:
        """See ``Variables``. Arrays of numpy in a program that has turned eager execution off."""
        return room if sys.byteorder == "little" and tf.executing_eagerly() else numpy_room

    def settle(self, model: Any) -> None:
        """TensorFlow's variables have their values at any time."""

    def versions(self) -> dict[str, str]:
        """TensorFlow's."""
        return {"tensorflow": tf.__version__}

    def steps(self, model: Any, optimizer: Any) -> Steps:
        """See ``Framework``. TensorFlow's optimizers have their count themselves."""
        return Steps(optimizer)

    def against_graph(self, model: Any) -> str:
        """See ``Framework``."""
        if refusals.is_compiled_by_xla(model):
            return "it is compiled by XLA (jit_compile)"
        if getattr(model, "autotune_steps_per_execution", False):
            return "Keras tunes its steps_per_execution"
        return ""

    def capture(
        self,
        state: TrainingState,
        ranges: Sequence[tuple[StateTensor, int, int]],
        rank: int,
        own_memory: bool,
        in_graph: bool,
        maximum: TensorFlowMaximum | None,
        optimizer: Any,
        when: str,
    ) -> TensorFlowCapture:
        """See ``Framework``."""
        every_step: Callable[[], None] | None = None
        if in_graph:
            every_step = _nothing if maximum is None else maximum.emit
        buffers = GraphBuffers() if own_memory else EngineBuffers()
        placed = [Range(*one) for one in ranges]
        return TensorFlowCapture(state, placed, rank, buffers, every_step, optimizer, when=when)


def _nothing() -> None:
    """Adds no op to the step: a single rank has no other rank to agree with, and ranks without Horovod agree between two executions."""


FRAMEWORK: Framework[TrainingState] = TensorFlow()
