"""Whether the ranks have equal weights when a training begins. Horovod's own callback makes them equal only after the first step."""

from __future__ import annotations

from deepfreeze.events.event import Diverged
from deepfreeze.events.events import Events
from deepfreeze.frameworks.state_capture import StateCapture
from deepfreeze.state.training_state import TrainingState
from deepfreeze.training.engine_reports import weights_differ
from deepfreeze.training.open_run import OpenRun

# After so many executions Horovod's own callback has made the ranks' weights equal, wherever it stands in the list of callbacks.
_EXECUTIONS_UNTIL_EQUAL = 2


class FirstWeights:
    """The weights of all ranks at the beginning of one training. The training thread of every rank calls the methods. ``equal``: whether
    they were equal. If they were not, nothing may be captured in the first execution: a checkpoint would mix the weights of several
    models."""

    def __init__(self, open_run: OpenRun, capture: StateCapture[TrainingState], events: Events) -> None:
        """Collective: compares the ranks."""
        self._target, self._world = open_run.attempt.target, open_run.attempt.world
        self._capture, self._events = capture, events
        self.equal = self._world.size == 1 or not self._others()
        self._until_compared = 0 if self.equal else _EXECUTIONS_UNTIL_EQUAL

    def execution_ended(self, step: int) -> None:
        """To be called after each execution, on every rank. Compares a training that began with different weights once more after its
        second execution, and rank 0 warns if they still differ. The first checkpoint, which names the tensor, may be many steps away."""
        if not self._until_compared:
            return
        self._until_compared -= 1
        if self._until_compared:
            return
        others = self._others()
        if others and self._world.rank == 0:
            self._events.emit(Diverged(step=step, message=str(weights_differ(self._target.run, step, others))))

    def _others(self) -> list[int]:
        """Collective: the ranks whose weights are not rank 0's."""
        prints = self._world.gather(self._capture.fingerprint())
        return [rank for rank, one in enumerate(prints) if one != prints[0]]
