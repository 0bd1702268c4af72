"""The part that notes what happens to steps."""

from __future__ import annotations

import time

from deepfreeze.events.event import Captured
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.saver import Saver
from deepfreeze.training.begun import Begun
from deepfreeze.training.part import Part

# Bound once: each look-up costs training.
_captured = Captured.noted


class TellingSteps(Part):
    """The events of one training's steps."""

    def __init__(self, begun: Begun) -> None:
        self._open_run, self._steps, self._notes = begun.open_run, begun.counted.steps, begun.events.notes
        self._began = False  # there was an execution
        self._saver: Saver | None = None

    def opens(self, saver: Saver, agreed: AgreedStructure) -> None:
        """Gets the saver, which knows the bytes of a capture."""
        self._saver = saver

    def execution_ended(self) -> None:
        """Notes the first step of the job."""
        if self._began:
            return
        self._began = True
        if self._open_run.first_step is not None:
            self._open_run.first_step.done(self._steps.now())

    def captured(self, step: int) -> None:
        """Notes the capture."""
        assert self._saver is not None
        self._notes.append((time.monotonic(), _captured, (step, self._saver.nbytes)))
