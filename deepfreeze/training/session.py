"""One ``fit``, or one hand-written loop, from its beginning to its end: in which order what is done after each execution."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from deepfreeze.events.stats import Newest
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.ranks import world as worlds
from deepfreeze.state.attachments import Attachments
from deepfreeze.training.begun import Begun
from deepfreeze.training.early_end import EarlyEnd
from deepfreeze.training.failures import Failures
from deepfreeze.training.handover import Handover
from deepfreeze.training.installation import Installation
from deepfreeze.training.part import Saving
from deepfreeze.training.part_list import Parts
from deepfreeze.training.saves import Saves


class Session:
    """One ``fit`` or one loop, from construction to ``end``. The training thread of every rank calls ``executed`` after every execution of
    the train function. An execution runs one step, or several (``steps_per_execution``). A session that has raised can't go on: the
    caller closes its run. ``schedule``: which steps are captured."""

    def __init__(
        self, begun: Begun, installation: Installation, parts: Parts, attachments: Attachments, saved: Newest[int]
    ) -> None:
        """Collective. ``begun``: whose agreement is connected to the installation; ``saved``: the model's steps that are saved already, to
        which the session adds its own. Raises the errors of ``Saver`` if the installation has served another session before."""
        self._world, self._installation = begun.world, installation
        self._steps, self._count = begun.counted.steps, begun.counted.count
        self._agreement, self._position = begun.agreement, begun.position
        self._options, self._attachments = begun.options, attachments
        self._failures = Failures(begun, parts)
        self._hands = Handover(begun, installation, parts, attachments, self._failures)
        self._saves = Saves(begun, parts, self._hands, self._failures, saved)
        self._early_end = EarlyEnd(begun, self._saves, self._failures, attachments)
        self._parts = parts
        self._began = False  # there was an execution
        captures = parts.begins(installation)
        if installation.agreed is not None:
            self._saves.open()
        self.schedule = Schedule(begun.policy, begun.open_run.attempt.step, captures, installation.in_graph)
        self._hands.arm(self.schedule.target)

    @property
    def stopped(self) -> bool:
        """Whether a signal, the job's end or a rehearsal has ended training."""
        return self._early_end.stopped

    @property
    def saver(self) -> Saver:
        """The saver. It is opened when all of the model's variables exist: in the constructor if an earlier session of the model has left
        its installation, else here, after the first execution. Collective when it is opened."""
        if self._hands.saver is None:
            worlds.each(self._world, self._installation.first_execution_ended)
        return self._hands.saver or self._saves.open()

    def executed(self) -> bool:
        """To be called once after each execution, on every rank. Hands the capture of the execution to the engine, if there is one, and
        settles with the other ranks what happens next. Returns False if training should end now.

        Raises ``EngineError`` or ``WaitError`` if a checkpoint has failed on any rank (with ``on_error="warn"`` this rank's failures are
        warnings), ``OptionError`` if the policy of any rank fails."""
        self._parts.execution_ended()
        saver, self._began = self.saver, True
        begin = time.monotonic()
        copied = self._hands.finish()
        self._saves.release(epoch_open=True)  # there is none if Keras has begun the epoch of this execution
        self._saves.take_reports()
        step = self._count.after_execution(self._agreement)
        done = self.schedule.ended(step, inside=not copied)
        if done.captured is not None:
            self._capture(done, done.captured, saver, copied)
        try:
            stop = self._early_end.later or self._settle(done)
        finally:
            self._hands.note_blocked(begin)
        if stop:
            self._early_end.at(step, stop, self.schedule)
            self._hands.arm(self.schedule.target)
        self._parts.goes_on(self.schedule)
        return self._failures.going_on

    def _capture(self, done: Execution, captured: int, saver: Saver, copied: bool) -> None:
        """Saves the step that the execution has captured."""
        over, step = self._over, self.schedule.step
        late = captured == step and saver.may_be_late and not copied and not over
        collect = saver.take if copied else lambda: saver.collect(captured)
        self._saves.release(epoch_open=True)  # there is none but in data of unknown size
        self._hands.leaves(late)
        self._saves.save(Saving(captured, step - captured, done.steps), collect, self.schedule, late, hold=over)
        if not saver.held:
            self._saves.kill_if_rehearsed(captured)

    def _settle(self, done: Execution) -> int:
        """Settles with the other ranks what comes after the execution, and prepares the next one. Returns the number of a signal after
        which training ends, ``JOB_ENDS`` or ``REHEARSAL_ENDS``; 0 if training goes on."""
        schedule, parts, steps = self.schedule, self._parts, max(1, done.steps)
        self._saves.tell(done)
        parts.ended(done, schedule)
        # The ranks meet at each checkpoint, before the execution that captures it and after: they can skip it.
        agreed = self._agreement.settle(soon=done.captured is not None or schedule.within(steps))
        if agreed.stop:
            return agreed.stop
        parts.settled(done, schedule, agreed.skip)
        schedule.aim(agreed.skip)
        given_up = parts.gives_up(schedule)
        if given_up is not None:
            parts.gave_up(given_up)
        parts.aims(done, schedule)
        armed = schedule.within(steps)
        if armed:
            self._hands.finish()  # memory for two captures at once is nowhere
        self._hands.arm(schedule.target)
        if armed:
            self._hands.reserve()  # the next execution may capture; unlike a wait in the graph, Ctrl-C can end this one
        self._agreement.skip(parts.proposes(0, schedule, steps))
        return 0

    def epoch_ended(self) -> None:
        """To be called at the end of each epoch, on every rank. Saves the last step if it is due and was not captured: nobody knew that it
        would be the epoch's last one, or it was counted without an execution. Other callbacks may not have seen the epoch's end yet.

        With data of unknown size Keras begins one execution too many at the end of an epoch. It ends for want of a batch, without a call of
        ``executed``, and the optimizer may have counted steps in it."""
        step, schedule = self._count.now(), self.schedule
        if self._hands.saver is None:
            return
        self._saves.hand_over()
        if step != schedule.step:
            done = schedule.ended(step)
            if done.captured is not None:
                self._saves.now(step, schedule)
            self._saves.tell(done)
        if self._parts.epoch_ended(schedule, step) and not schedule.settled(step):
            self._saves.now(step, schedule)
        schedule.aim(0)
        self._parts.epoch_settled(schedule)
        self._hands.arm(schedule.target)

    def pauses(self) -> None:
        """To be called where the next execution may come much later, or never; on each rank by itself."""
        self._saves.pause()

    def callbacks_have_ended_epoch(self) -> None:
        """To be called at the begin of the next epoch, on every rank: hands over the epoch's last step if it was held. ``end`` does so
        too."""
        self._attachments.callbacks.epoch_ended(self._steps.now())
        if self._hands.holds:
            self._saves.release(epoch_open=False)
            self._hands.reserve_late()

    def save_last(self) -> None:
        """Saves the present step as the final checkpoint, with the values that the model has now: they may change before ``end``. Does
        nothing if the step is saved already, if there was no execution, or with ``final=False``. Raises as ``executed`` does."""
        self._saves.hand_over()
        if not self._options.final or not self._began or self._hands.saver is None:
            return
        step = self._count.now()
        if step not in self._saves:
            self._saves.now(step, self.schedule)

    def end(self) -> None:
        """Saves the last step and waits until every checkpoint is committed or failed. Raises as ``executed`` does."""
        self._failures.going_on = False
        if self._hands.saver is None or not self._began:
            self._parts.ends_without_steps()
            return
        self.save_last()
        self._attachments.callbacks.epoch_ended(self._steps.now())
        self._saves.release(epoch_open=False)
        self._saves.drain()
        if self._early_end.later and not self.stopped:
            self._early_end.by(self._early_end.later)  # training has ended by itself before the next execution
        if self._agreement.failure is not None:  # training has ended before the ranks agreed to raise it
            raise self._agreement.failure
        self._parts.ends(self._options.final or self.stopped, self.stopped)

    def measured(self, values: Mapping[str, Any], step: int | None = None, epoch: int | None = None) -> None:
        """Gives metrics to the parts. ``step``: at which they were taken, None for the present one; ``epoch``: the number of epochs done,
        at the end of one."""
        step = self._steps.now() if step is None else step
        self._parts.measured(values, step, epoch)

    @property
    def _over(self) -> bool:
        """Whether the last execution was the last one of its epoch, as far as Keras knows."""
        return self._position is not None and self._position.epoch_is_over
