"""The captures that a training installs in a model. They stay with the model when the training ends. So the next ``fit`` does not trace the
model again, and does not ask Keras again for the layout of the model file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from deepfreeze.engine.backends import table as backends
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.frameworks import table
from deepfreeze.frameworks.framework import Framework
from deepfreeze.frameworks.state_capture import StateCapture
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.regions import RankRegions
from deepfreeze.plan.placement import PLACEMENTS
from deepfreeze.ranks.control_word import GraphMaximum
from deepfreeze.ranks.world import World
from deepfreeze.state.training_state import TrainingState

_ATTRIBUTE = "_deepfreeze_installations"


@dataclass(frozen=True)
class Terms:
    """The circumstances for which captures are made. Captures serve a later training only if all of its circumstances are the same.

    - ``in_graph``: True if the train function takes the captures, False if they are taken between two executions of it.
    - ``own_memory``: True if pieces are copied into the framework's own memory, False if into the engine's.
    - ``optimizer``: the optimizer whose updates are the steps.
    - ``when``: which groups may be captured late (``plan.late_groups``); "update" without ``in_graph``, and with ``own_memory``.
    - ``state``, ``placement``: the options of these names; ``granule``: bytes, at whose multiples the placement cuts the file;
      ``fields``: the names of the control word's fields.
    - ``rank``, ``world_size``, ``communicator``: this process's rank, the number of ranks, and the option ``world``."""

    in_graph: bool
    own_memory: bool
    optimizer: Any
    when: str
    state: str
    placement: str
    granule: int
    fields: tuple[str, ...]
    rank: int
    world_size: int
    communicator: Any


class Installation:
    """The captures of one model's training state, from the first training that uses them until ``close``, or for as long as the model
    lives. At most one training at a time uses an installation: from the constructor, or from ``take``, until ``rest``.

    ``agreed``: the structure of the model's checkpoints; ``regions``: this rank's regions of each capture. Both are None until the model's
    first execution is over. ``in_use``: whether a training uses the installation now. ``config``: how to build the model, False if Keras
    can't describe it, None as long as nobody has asked. ``stored_in``: the id of the run that has the structure, "" for none.
    ``after_first_execution``: called once by ``first_execution_ended``, and forgotten then."""

    def __init__(self, terms: Terms, capture: StateCapture[TrainingState], maximum: GraphMaximum | None) -> None:
        """``maximum``: takes the control word's maximum in the train function; None if the ranks agree between two executions, or if there
        is one rank. The model keeps the installation."""
        self.capture, self.maximum = capture, maximum
        self.agreed: AgreedStructure | None = None
        self.regions: RankRegions | None = None
        self.stored_in = ""
        self.after_first_execution: Callable[[], None] | None = None
        self.config: ModelConfig | Literal[False] | None = None
        self._terms = terms
        self.in_use = True
        self._model_installations = _installations(capture.state.model)
        self._model_installations.append(self)

    @classmethod
    def make(cls, state: TrainingState, terms: Terms, world: World) -> Installation:
        """Puts new captures into the model of ``state``, its full training state. ``EngineFault`` if the engine has no area for them."""
        framework = table.of(state.model)
        maximum = framework.maximum(world, len(terms.fields)) if terms.in_graph and world.in_graph else None
        captured = state.only(terms.state)
        placed = captured.placed()
        specs = [tensor.spec for tensor in placed]
        shards = PLACEMENTS[terms.placement](specs, world.size, terms.granule)[world.rank]
        ranges = [(placed[s.tensor], s.start, s.stop) for s in shards]
        own_memory, in_graph = terms.own_memory, terms.in_graph
        capture = framework.capture(
            captured, ranges, world.rank, own_memory, in_graph, maximum, terms.optimizer, terms.when
        )
        return cls(terms, capture, maximum)

    @classmethod
    def take(cls, state: TrainingState, terms: Terms, world: World) -> Installation | None:
        """Collective. The installation that an earlier training has left with the model of ``state``, if it serves a training on these
        terms on every rank. Idle installations on other terms stay too, because two ``Checkpoint`` of one ``fit`` have one each; but where
        the model is traced anew, all idle ones are closed."""
        found = list(_installations(state.model))
        idle = [one for one in found if not one.in_use]
        serving = [one for one in idle if one._serves(state)]
        fitting = [one for one in serving if one._terms == terms]
        # If two ranks kept different installations, their graphs would differ.
        rows = [(one in idle, one in serving, one in fitting) for one in found]
        same = all(row == rows for row in world.gather(rows))
        chosen = fitting[0] if same and fitting else None
        if chosen is None or len(serving) < len(idle):
            for one in idle:
                if one is not chosen:
                    one.close()
        if chosen is not None:
            chosen.in_use = True
        return chosen

    @property
    def in_graph(self) -> bool:
        """Whether the train function takes the captures; else they are taken between its executions."""
        return self._terms.in_graph

    @property
    def granule(self) -> int:
        """Bytes, at whose multiples the placement cuts the file."""
        return self._terms.granule

    def first_execution_ended(self) -> None:
        """To be called after the first execution with these captures. ``UnsupportedError`` if ``train_step`` does not apply the optimizer
        whose updates are the steps."""
        self.capture.check_applied()
        self.capture.forget_unfinished()
        after, self.after_first_execution = self.after_first_execution, None
        if after is not None:
            after()

    def rest(self) -> None:
        """To be called when the training that uses the installation has ended. Nothing is captured until another training takes it."""
        if self.in_use:
            self.in_use = False
            self.capture.rest()

    def close(self) -> None:
        """Takes the captures out of the model. Safe to call twice."""
        self.in_use = False
        if self in self._model_installations:
            self._model_installations.remove(self)
        self.capture.close()

    def _serves(self, state: TrainingState) -> bool:
        """Whether it captures the model as the model is now. ``state``: the model's full state."""
        if self.agreed is None:
            return False  # the training that installed it ended before its first step
        return self.capture.state.same_as(state.only(self._terms.state)) and self.capture.in_place


def against_engine_memory(framework: Framework[TrainingState], path: str) -> str | None:
    """The reason why this rank's captures can't lie in the backend's memory, as text for the log. None if they can. ``path``: the option
    ``Capture.path``."""
    if path == "graph":
        return 'Capture(path="graph")'
    if not backends.chosen().can.memory:
        return "the backend has no memory for captures"
    return framework.against_engine_memory()


class _Installations(list[Installation]):
    """The installations of one model, an attribute of the model. A copy of the model, or the model read back from a pickle, has an empty
    list."""

    def __deepcopy__(self, memo: Any) -> _Installations:
        return _Installations()

    def __reduce__(self) -> tuple[type[_Installations], tuple[()]]:
        return _Installations, ()


def _installations(model: Any) -> _Installations:
    # Set in the model's __dict__: its __setattr__ would track the list as a part of the model.
    return vars(model).setdefault(_ATTRIBUTE, _Installations())
