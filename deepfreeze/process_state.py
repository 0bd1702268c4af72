"""The memory of this process from one training to the next. Every other state belongs to one training, or to one object."""

from __future__ import annotations

import weakref
from typing import Any


class ProcessState:
    """The memory of one process, which begins empty.

    - ``ended_fits``: by the id of a run, how many fits of this process have ended in it. A program that is started again begins with the
      same fits.
    - ``last_trainings``: by the id of a run, the ``LastTraining`` there. The next training in the run goes on from it, or is refused.
    - ``trained_models``: by the id of a run, a weak reference to the model whose training has ended there last. Another model that goes on
      there has seen its data.
    - ``warned``: the warnings that the user has had, as text, and the ids of the runs of which the user was warned. Each warning comes
      once in a process, however many models the process trains.
    - ``ways``: by run and by the options that matter, the way to the external store that a probe has found. A program may call ``fit``
      hundreds of times.
    - ``traced_models``: the models whose ``train_step`` was traced. A layer of theirs that is still not built has no part in the training.
    - ``first_step``: the id of the process that has noted its first step, None if none has. A forked child has a beginning of its own."""

    def __init__(self) -> None:
        self.ended_fits: dict[str, int] = {}
        self.last_trainings: dict[str, Any] = {}
        self.trained_models: dict[str, weakref.ref[Any]] = {}
        self.warned: set[str] = set()
        self.ways: dict[tuple[str, int, int], str] = {}
        self.traced_models: weakref.WeakSet[Any] = weakref.WeakSet()
        self.first_step: int | None = None

    def forget(self) -> None:
        """Empties the memory, as if another process began. For tests."""
        self.__dict__.update(vars(ProcessState()))


PROCESS = ProcessState()
