"""A framework without a graph, which keeps the state of a training to itself, and whose values are new objects after each step: what a
``frameworks.framework.Framework`` has at least."""

from __future__ import annotations

import random

import numpy as np

from deepfreeze.errors import UnsupportedError
from deepfreeze.format.tensors import REPLICATED
from deepfreeze.frameworks.area_buffers import AreaBuffers, variables_of
from deepfreeze.frameworks.framework import Capabilities, Framework
from deepfreeze.frameworks.state_capture import Piece
from deepfreeze.frameworks.variables import KerasVariables
from deepfreeze.state.training_state import TrainingState
from veloc_bindings import crc32c


class ToySteps:
    """Implements ``StepCounter``. While the model trains, the count is in its state."""

    batches_per_step = 1

    def __init__(self, model, optimizer):
        self._model, self.optimizer, self.counter = model, optimizer, optimizer.iterations

    def counts(self, optimizer):
        return optimizer is self.optimizer

    def now(self):
        state = self._model.state
        return int(self.counter.numpy() if state is None else state[2])

    def batches_now(self):
        return self.now()

    def set(self, step):
        self.counter.assign(step)


class ToyCapture:
    """Implements ``StateCapture``: copies between two steps into the engine's memory."""

    may_be_late = held = False
    in_place = True
    asked = True  # the step writes nothing but what the model lists

    def __init__(self, state, ranges, rank):
        self.engine_memory = AreaBuffers()
        self.state, self.left_out, self.traced = state, [], None
        self._ranges, self._rank = ranges, rank
        self._pieces = None

    @property
    def pieces(self):
        if self._pieces is None:
            self.state = self.state.grown()
            mine = [one for one in self._ranges if one[0].spec.role == REPLICATED]
            mine += [(tensor, 0, tensor.spec.nbytes) for tensor in self.state.whole_on(self._rank)]
            self._pieces = [Piece(tensor.variable, start, stop) for tensor, start, stop in mine if stop > start]
            self.engine_memory.add(self._pieces)
        return self._pieces

    def captures(self, variable):
        assert self.pieces is not None  # the state has grown
        return self.state.find(variable) is not None

    def take(self):
        pieces = self.pieces
        self.state.model.put_back()
        self.engine_memory.copy(0, [FRAMEWORK.value(variable) for variable in variables_of(pieces)])
        return self.engine_memory.collect()

    def collect(self, step):
        return self.take()

    def memory_of(self, variable):
        return np.ascontiguousarray(FRAMEWORK.value(variable)).reshape(-1).view(np.uint8)

    def fingerprint(self):
        self.state.model.put_back()
        return crc32c(np.concatenate([self.memory_of(one.variable) for one in self.state.of_role(REPLICATED)]))

    def arm(self, step):
        """The session asks for captures between two steps."""

    def check_applied(self):
        """The toy has one optimizer."""

    def forget_unfinished(self):
        """Nothing is captured in a step."""

    def follow_metrics(self):
        """The variables stay what they are."""

    def rest(self):
        self.engine_memory.discard()

    def close(self):
        self.engine_memory.close()


class ToyGenerators:
    """Python's alone."""

    def states(self):
        return {"python": random.getstate()}

    def set(self, states):
        random.setstate(states["python"])

    def seed(self, sequence):
        random.seed(int(sequence.generate_state(1)[0]))


class Toy(KerasVariables):
    """Implements ``Framework``."""

    capabilities = Capabilities()
    generators, steps = ToyGenerators, ToySteps

    def value(self, variable):
        return variable.numpy()

    def settle(self, model):
        model.put_back()

    def versions(self):
        return {"tensorflow": "0.0"}  # a name that the format knows

    def refuse(self, model, optimizer=None, averages_in_graph=False, where="", built=True, loop=False):
        if getattr(model, "optimizer", None) is None:
            raise UnsupportedError(where=where, expected="a compiled model", found="another one", todo="compile it")

    def refuse_devices(self, state, where):
        """There is one device."""

    def against_graph(self, model):
        return "a toy has no graph"

    def layers_to_build(self, model):
        return []

    def begins_with_trace(self, model):
        return False

    def build_by(self, model, shapes):
        raise UnsupportedError(where="a toy", expected="a built model", found="another one", todo="build it")

    first_trace = marked_step = None

    def trace_anew(self, model):
        """Nothing is traced."""

    def line_to_average(self, model, optimizer):
        return None

    def against_engine_memory(self):
        return None

    def capture(self, state, ranges, rank, own_memory, in_graph, maximum, optimizer, when):
        assert not own_memory and not in_graph and maximum is None
        return ToyCapture(state, ranges, rank)

    def maximum(self, world, fields):
        return None

    def unlisted(self, state):
        return []


FRAMEWORK: Framework[TrainingState] = Toy()
