"""A training that ends before its time: a signal came, the job will be ended, or a rehearsal is over."""

from __future__ import annotations

from deepfreeze.events.event import Stop
from deepfreeze.format.attachment_tree import EPOCH
from deepfreeze.plan.schedule import Schedule
from deepfreeze.ranks.agreement import REHEARSAL_ENDS
from deepfreeze.state.attachments import Attachments
from deepfreeze.training.begun import Begun
from deepfreeze.training.failures import Failures
from deepfreeze.training.saves import Saves


class EarlyEnd:
    """The early end of one session. The training thread of every rank calls all methods, after the same step. ``stopped``: training was
    ended; ``later``: what ends it after the next execution, 0 if nothing does."""

    def __init__(self, begun: Begun, saves: Saves, failures: Failures, attachments: Attachments) -> None:
        self.stopped, self.later = False, 0
        self._steps, self._position = begun.counted.steps, begun.position
        self._agreement, self._events = begun.agreement, begun.events
        self._saves, self._failures = saves, failures
        self._inside = EPOCH in attachments.of_epochs  # the next start goes on inside of an epoch

    def at(self, step: int, number: int, schedule: Schedule) -> None:
        """Commits ``step`` and ends training, because a rank has received the signal ``number``, the job's end is near (``JOB_ENDS``), or
        it is the last step of a rehearsal (``REHEARSAL_ENDS``).

        The job may have no time for what Keras does at the end of an epoch. So an epoch's last step is committed before, without what
        callbacks do there. Where the next start goes on inside of an epoch, training ends with the next update then: that checkpoint has
        the epoch's end."""
        position = self._position
        over = position is not None and position.epoch_is_over
        if self.later and step in self._saves and not over:
            return  # this batch was no update: gradients are accumulated, or the loss scale has skipped it
        schedule.stop()
        another = position is not None and over and position.another_epoch
        if self._inside and number != REHEARSAL_ENDS and another and not self.later:
            self.later = number
        else:
            self.by(number)
        self._saves.hand_over()
        if step not in self._saves:
            self._saves.now(step, schedule, hold=over)
        self._saves.release(epoch_open=True)
        self._saves.drain()

    def by(self, number: int) -> None:
        """Training ends here, because of ``number``, as for ``at``."""
        self._failures.going_on, self.stopped = False, True
        self._events.emit(Stop(step=self._steps.now(), signal=self._agreement.stop_name(number)))
