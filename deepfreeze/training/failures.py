"""The answer of one rank to a checkpoint that fails: the rank raises, warns, or goes on."""

from __future__ import annotations

from deepfreeze.errors import Error
from deepfreeze.events.event import Failed
from deepfreeze.events.stats import Newest
from deepfreeze.training.begun import Begun
from deepfreeze.training.part_list import Parts

_TRIED = "It was taken to try a setting of the engine: training goes on with one that has worked."


class Failures:
    """The failures of one session's checkpoints, on this rank. The training thread calls all methods. ``going_on``: whether further steps
    will come, in which the ranks can agree; the session sets it to False."""

    def __init__(self, begun: Begun, parts: Parts) -> None:
        self.going_on = True
        self._agreement, self._events = begun.agreement, begun.events
        self._alone = begun.world.size == 1
        self._raises = begun.options.on_error != "warn"
        self._tolerates = parts.tolerates
        self._told: Newest[int] = Newest()  # steps whose failure was told

    def has_told(self, step: int) -> bool:
        """True if the events already have the failure of ``step``."""
        return step in self._told

    def reported(self, step: int, error: Error, by_store: bool) -> None:
        """The engine has reported that the checkpoint of ``step`` has failed. ``by_store``: because of the store alone. Raises as
        ``fail``."""
        if by_store and self.going_on and self._tolerates(step):
            self._told.append(step)
            self._events.emit(Failed(step=step, message=str(error), raised=False, reported=True, tried=True))
            self._events.warn(f"{error} {_TRIED}", once=_TRIED)
        else:
            self.fail(error, step, reported=True)

    def fail(self, error: Error, step: int | None = None, reported: bool = False) -> None:
        """Handles a failure of this rank. With ``on_error="warn"`` a warning tells of it. Otherwise proposes to the other ranks to end
        training, so that all ranks raise after the same step; or raises at once if no further step will come."""
        # A wait for a checkpoint may fail before the engine reports the checkpoint.
        if step is None or step not in self._told:
            self._events.emit(Failed(step=step, message=str(error), raised=self._raises, reported=reported))
        if step is not None:
            self._told.append(step)
        if not self._raises:
            return
        if self.going_on and not self._alone:
            self._agreement.fail(error)
        else:
            # An earlier failure comes first: training may have ended before the ranks agreed on it.
            raise self._agreement.failure or error
