"""The objects that a training has open when its parts are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deepfreeze.events.events import Events
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.plan.policy import Policy
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.world import World
from deepfreeze.retention.storage import Storage
from deepfreeze.training.counted_model import CountedModel
from deepfreeze.training.open_run import OpenRun
from deepfreeze.training.options import Options


@dataclass(frozen=True)
class Fitting:
    """How a model is trained.

    - ``counted``: the model, and the count of its steps.
    - ``position``: of the ``fit``, None in a loop.
    - ``against``: the reason why captures are taken between two executions and not in the train function, "" for none.
    - ``steps_per_execution``: how many batches one execution runs."""

    model: Any
    counted: CountedModel
    position: FitPosition | None
    against: str
    steps_per_execution: int


@dataclass(frozen=True)
class Begun:
    """One ``fit``, or one loop, that begins. Rooms below own these objects, and each part may call them.

    - ``open_run``: the run that is open for the model.
    - ``agreement``: of the ranks, not sealed yet: a part takes its fields of the control word in its constructor.
    - ``storage``: the bound of the run's bytes."""

    open_run: OpenRun
    agreement: Agreement
    policy: Policy
    fitting: Fitting
    options: Options
    events: Events
    storage: Storage

    @property
    def position(self) -> FitPosition | None:
        """The position of the ``fit``, None in a loop."""
        return self.fitting.position

    @property
    def counted(self) -> CountedModel:
        """The model, and the count of its steps."""
        return self.fitting.counted

    @property
    def world(self) -> World:
        """The ranks of the job."""
        return self.open_run.attempt.world

    def tell(self, message: str) -> None:
        """Tells the user, once for the job: rank 0 writes a line where ``verbose`` asks for it, or else notes it in the log. The others do
        nothing."""
        if self.world.rank == 0:
            self.events.tell(message, said=self.options.verbose > 0)
