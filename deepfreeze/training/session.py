"""One ``fit``, or one hand-written loop, from its beginning to its end: has the due steps captured and hands the captures to the engine."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from deepfreeze.errors import EngineError
from deepfreeze.events.event import Blocked, Captured, Stop
from deepfreeze.events.events import Events
from deepfreeze.events.stats import Newest
from deepfreeze.format.attachment_tree import EPOCH
from deepfreeze.frameworks.framework import CapturedState
from deepfreeze.freeze.agreed_structure import agree
from deepfreeze.freeze.described import Described
from deepfreeze.freeze.regions import RankRegions
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.auto_section import Conditions
from deepfreeze.plan.epoch_ends import EpochEnds
from deepfreeze.plan.job_end import JobEnd
from deepfreeze.plan.policy import NEVER, Policy
from deepfreeze.plan.rehearsal import Rehearsal
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.ranks import world as worlds
from deepfreeze.ranks.agreement import REHEARSAL_ENDS, Agreement, stop_name
from deepfreeze.retention.keeper import Keeper
from deepfreeze.state.attachments import Attachments
from deepfreeze.training.commits import Commits
from deepfreeze.training.first_weights import FirstWeights
from deepfreeze.training.installation import Installation
from deepfreeze.training.open_run import OpenRun
from deepfreeze.training.options import Options
from deepfreeze.training.replica_checks import ReplicaChecks
from deepfreeze.training.stored_config import StoredConfig
from deepfreeze.training.uncaptured import Uncaptured
from deepfreeze.training.when_full import WhenFull
from deepfreeze.training.wishes import Wishes
from deepfreeze.tuning.program_run import ProgramRun

# Bound once: each look-up costs training.
_captured, _blocked = Captured.noted, Blocked.noted


class Session:
    """One ``fit`` or one loop, from construction to ``end``. The training thread of every rank calls ``executed`` after every execution of
    the train function. An execution runs one step, or several (``steps_per_execution``). A session that has raised can't go on: the
    caller closes its run. ``schedule``: which steps are captured."""

    def __init__(
        self,
        open_run: OpenRun,
        installation: Installation,
        agreement: Agreement,
        wishes: Wishes,
        epochs: EpochEnds,
        checks: ReplicaChecks,
        job_end: JobEnd,
        policy: Policy,
        attachments: Attachments,
        options: Options,
        events: Events,
        saved: Newest[int],
        keeper: Keeper,
        when_full: WhenFull,
        described: Described,
        rehearsal: Rehearsal | ProgramRun | None = None,
    ) -> None:
        """Collective. ``open_run``: the open run, which closes what the session opens; ``agreement``: connected to the installation;
        ``saved``: the model's steps that are saved already, to which the session adds its own; ``keeper``: retention, a listener of
        ``events``; ``when_full``: what becomes of a step without room; ``described``: what rank 0's manifests say of the training;
        ``rehearsal``: None if this is none. Raises the errors of ``Saver`` if the installation has served another session before."""
        self._open_run, self._count, self._installation = open_run, open_run.counted, installation
        self._attachments, self._options = attachments, options
        self._events, self._notes, self._saved = events, events.notes, saved
        self._commits = Commits(open_run, agreement, wishes, checks, job_end, keeper, options, events)
        self._described, self._rehearsal = described, rehearsal
        self._when_full, self._storage = when_full, when_full.storage
        self._uncaptured = Uncaptured(self._storage, self._commits, events, open_run.attempt.world.rank)
        self.stopped = False  # a signal, or the job's end, ended training
        self._ends_later = 0  # what ends training after the next execution, see ``_stop``; 0 if nothing does
        self._began = False  # there was an execution
        self._saver: Saver | None = None
        self._config: StoredConfig | None = None
        self._agreement, self._wishes, self._epochs, self._checks = agreement, wishes, epochs, checks
        self._job_end = job_end
        self._first_weights = FirstWeights(open_run, installation.capture, events)
        if installation.agreed is not None:
            self._saver = self._open_saver()
        self.schedule = Schedule(policy, open_run.attempt.step, self._first_weights.equal, installation.in_graph)
        # Whether the next execution may copy a part of the last capture. It captures nothing then: this follows from numbers that are the
        # same on all ranks, and so does not depend on whether this rank's ``saver`` has something pending.
        self._copying = False
        self._reserve_later = False  # memory for the next capture is wanted, once the step that is held is handed over
        self._ask_again = False  # the policy was asked for the next step before it knew of its plan
        self._held_up = 0.0  # seconds for which the pending step has held training up
        self._handed: list[int] = []  # the steps that the engine was given in this call
        self._armed = -1
        self._arm()

    @property
    def saver(self) -> Saver:
        """The saver. It is opened when all of the model's variables exist: in the constructor if an earlier session of the model has left
        its installation, else here, after the first execution. Collective when it is opened."""
        if self._saver is None:
            self._saver = self._first_saver()
            self._ask_again = self._wishes.keeps_plan
        return self._saver

    def executed(self) -> bool:
        """To be called once after each execution, on every rank. Hands the capture of the execution to the engine, if there is one, and
        settles with the other ranks what happens next. Returns False if training should end now.

        Raises ``EngineError`` or ``WaitError`` if a checkpoint has failed on any rank (with ``on_error="warn"`` this rank's failures are
        warnings), ``OptionError`` if the policy of any rank fails."""
        self._wishes.execution_ended()
        self._job_end.execution_ended(time.monotonic())
        if not self._began and self._open_run.first_step is not None:
            self._open_run.first_step.done(self._open_run.steps.now())
        saver, self._began = self.saver, True
        begin = time.monotonic()
        copied = self._copying
        self._finish()
        self._release(epoch_open=True)  # there is none if Keras has begun the epoch of this execution
        self._commits.take()
        step = self._count.after_execution(self._agreement)
        schedule = self.schedule
        done = schedule.ended(step, inside=not copied)
        captured = done.captured
        if captured is not None:
            late = self._copying = captured == step and saver.may_be_late and not copied and not self._epochs.over
            collect = saver.take if copied else lambda: saver.collect(captured)
            self._save(captured, collect, step - captured, done.steps, late, hold=self._epochs.over)
            if not saver.held:
                self._kill_if_rehearsed(captured)
        try:
            stop = self._ends_later or self._settle(step, done)
        finally:
            self._note_blocked(begin)
        if stop:
            self._stop(step, stop)
        self._wishes.goes_on()
        return self._commits.going_on

    def _settle(self, step: int, done: Execution) -> int:
        """Settles with the other ranks what comes after the execution ``done``, which ended at ``step``, and prepares the next one. Returns
        the number of a signal after which training ends, ``JOB_ENDS`` or ``REHEARSAL_ENDS``; 0 if training goes on."""
        saver, schedule = self.saver, self.schedule
        self._uncaptured.tell(done)
        self._first_weights.execution_ended(step)
        self._wishes.observe(schedule, done, saver, self._events)
        end = self._job_end
        coming = [] if saver.pending is None else [saver.pending]
        if end.known and end.near(time.time(), time.monotonic(), [*saver.unfinished, *coming]):
            self._agreement.end()
        steps = max(1, done.steps)
        # The ranks meet at each checkpoint, before the execution that captures it and after: they can skip it.
        agreed = self._agreement.settle(soon=done.captured is not None or schedule.within(steps))
        if agreed.stop:
            return agreed.stop
        if self._rehearsal is not None and self._rehearsal.ends(step):
            return REHEARSAL_ENDS  # the same step on all ranks, so they need not agree
        self._wishes.settle(schedule, self._events)
        if self._ask_again:
            schedule.reconsider()
            self._ask_again = False
        given_up = self._when_full.settle(agreed.skip, schedule, saver, self._epochs.over)
        if given_up is not None:
            self._checks.give_back(given_up)
        self._epochs.execution_ended(schedule, done)
        schedule.serve(self._wishes.soon, steps)
        if schedule.within(steps):
            self._finish()  # memory for two captures at once is nowhere
        self._arm()
        if schedule.within(steps):
            self._reserve()  # the next execution may capture; a wait here, unlike one in the graph, can be ended by Ctrl-C
        self._when_full.propose(schedule, steps, saver)
        return 0

    def epoch_ended(self) -> None:
        """To be called at the end of each epoch, on every rank. Saves the last step if it is due and was not captured: nobody knew that it
        would be the epoch's last one, or it was counted without an execution. Other callbacks may not have seen the epoch's end yet.

        With data of unknown size Keras begins one execution too many at the end of an epoch. It ends for want of a batch, without a call of
        ``executed``, and the optimizer may have counted steps in it."""
        step, schedule = self._count.now(), self.schedule
        if self._saver is None:
            return
        self._hand_over()
        if step != schedule.step:
            done = schedule.ended(step)
            if done.captured is not None:
                self._save_now(step, self._saver.take)
            self._uncaptured.tell(done)
        if self._epochs.ended(step) and not schedule.settled(step):
            self._save_now(step, self._saver.take)
        schedule.aim(0)
        if self._epochs.wanted:
            schedule.reconsider()
        self._arm()

    def pauses(self) -> None:
        """To be called where the next execution may come much later, or never; on each rank by itself."""
        if self._saver is not None:
            self._when_full.let_go(self._saver)

    def callbacks_have_ended_epoch(self) -> None:
        """To be called at the begin of the next epoch, on every rank: hands over the epoch's last step if it was held. ``end`` does so
        too."""
        self._attachments.callbacks.epoch_ended(self._open_run.steps.now())
        if self._saver is not None and self._saver.held:
            self._release(epoch_open=False)
            if self._reserve_later:
                self._reserve()

    def save_last(self) -> None:
        """Saves the present step as the final checkpoint, with the values that the model has now: they may change before ``end``. Does
        nothing if the step is saved already, if there was no execution, or with ``final=False``. Raises as ``executed`` does."""
        self._hand_over()
        if not self._options.final or not self._began or self._saver is None:
            return
        step = self._count.now()
        if step not in self._saved:
            self._save_now(step, self._saver.take)

    def end(self) -> None:
        """Saves the last step and waits until every checkpoint is committed or failed. Raises as ``executed`` does."""
        self._commits.going_on = False
        if self._saver is None or not self._began:
            self._commits.end_without_steps()  # training ended before its first step
            return
        self.save_last()
        self._attachments.callbacks.epoch_ended(self._open_run.steps.now())
        self._release(epoch_open=False)
        self._commits.drain()
        if self._ends_later and not self.stopped:
            self._end_by(self._ends_later)  # training has ended by itself before the next execution
        if self._agreement.failure is not None:  # training has ended before the ranks agreed to raise it
            raise self._agreement.failure
        self._wishes.end(self._events, saved=self._options.final or self.stopped)
        if not self.stopped:
            self._commits.require_metrics()

    def _first_saver(self) -> Saver:
        """Collective. Opens the saver after the model's first execution with these captures."""
        worlds.each(self._open_run.attempt.world, self._installation.first_execution_ended)
        return self._open_saver()

    def _open_saver(self) -> Saver:
        """Collective. Agrees on the structure of the checkpoints, unless the installation has it, and opens the engine."""
        attempt, installation = self._open_run.attempt, self._installation
        target, world = attempt.target, attempt.world
        capture = installation.capture
        state = capture.state if installation.agreed is not None else capture.state.grown()
        if self._options.save_config and world.rank == 0:
            self._config = StoredConfig(installation, target, self._events.notify)
        attached = 0
        if self._attachments:
            step = self._open_run.steps.now()
            attached = worlds.each(world, lambda: self._attachments.check(step))
        agreed = installation.agreed
        if agreed is None:
            agreed = agree(state, world, self._events.notify, installation.granule)
        regions = installation.regions
        if regions is None or agreed is not installation.agreed:
            regions = worlds.each(world, lambda: RankRegions.of(agreed, capture, world.rank, world.size))
        # Storing the structure again, as a new process does, would cost the next ``fit`` two syncs.
        stored = agreed is installation.agreed and installation.stored_in == target.run_id
        installation.agreed, installation.regions = agreed, regions
        settings, notify = self._options.saver(self._checks.comparisons.begins, self._wishes.tunes), self._events.notify
        saver = Saver(
            agreed, regions, capture, self._attachments, target, world, attempt.nodes, settings, notify, stored
        )
        saver.expects(attached)
        installation.stored_in = target.run_id
        self._open_run.file_size = agreed.structure.file_size
        self._commits.open(saver)
        self._storage.open(saver, self._options.keep, self._commits.take)
        conditions = Conditions(agreed.structure.digest.hex(), world.size, attempt.nodes.cores, saver.tier)
        self._wishes.begin(conditions, saver, self._open_run.steps.now())
        return saver

    def _arm(self) -> None:
        """Sets the step that the train function is to capture next."""
        target = NEVER if self._copying else self.schedule.target
        if target != self._armed:
            self._installation.capture.arm(target)
            self._armed = target

    def _save_now(self, step: int, collect: Callable[[], CapturedState]) -> None:
        """Saves ``step``, the last one of an epoch or of a ``fit``, where training waits for nothing else."""
        begin = time.monotonic()
        if not self._uncaptured.leaves_out(step, self.schedule):
            self._save(step, collect, hold=True)
        self._note_blocked(begin)

    def _save(
        self,
        step: int,
        collect: Callable[[], CapturedState],
        behind: int = 0,
        steps: int = 1,
        late: bool = False,
        hold: bool = False,
    ) -> None:
        """Hands the capture that ``collect`` returns to the engine as the checkpoint of ``step``, which is so many steps ``behind`` the
        end of an execution of ``steps``. A step that has failed is not tried again, because it has failed on the other ranks too.
        ``late``: as for ``Saver.save``; ``hold``: other callbacks have still to act on the step, as they do at the end of an epoch. If
        their states are among the attachments, the step is held until they have."""
        self._release(epoch_open=True)  # there is none but in data of unknown size
        if not self._uncaptured.may_hand_over(step, collect, self.schedule, self.saver):
            return
        if hold or 0 < self._wishes.soon <= step:
            self._when_full.keeps(step)
        part = self._checks.next(step)
        self._saved.append(step)
        self.schedule.taken(step)
        if self._config is not None:
            self._config.store()
        try:
            hold = hold and bool(self._attachments.of_epochs)
            self.saver.save(step, collect, part, self._described.values(behind, steps), late, hold)
        except EngineError as error:
            self._commits.fail(error, step)
            return
        if hold or self.saver.pending is None:
            self._note_captured(step)
        if self.saver.pending is None:
            self._handed.append(step)

    def _finish(self) -> None:
        """Hands a late capture to the engine, if there is one. From now on the train function may capture."""
        self._copying = False
        saver = self._saver
        step = saver.pending if saver is not None else None
        if saver is None or step is None or saver.held:
            return
        try:
            saver.finish()
        except EngineError as error:
            self._commits.fail(error, step)
            return
        self._note_captured(step)
        self._handed.append(step)

    def _release(self, epoch_open: bool) -> None:
        """Hands the step that is held to the engine, if there is one. ``epoch_open``: callbacks have not seen the end of its epoch."""
        saver = self._saver
        step = saver.pending if saver is not None and saver.held else None
        if saver is None or step is None:
            return
        begin = time.monotonic()
        try:
            saver.release(epoch_open, self._described.logs)
        except EngineError as error:
            self._commits.fail(error, step)
        else:
            self._handed.append(step)
        self._note_blocked(begin)
        self._kill_if_rehearsed(step)

    def _hand_over(self) -> None:
        """Hands a late capture over where training waits for nothing else: no further step may come, or it may come much later."""
        self.pauses()
        if self._saver is not None and self._saver.held:
            return
        begin = time.monotonic()
        self._finish()
        self._note_blocked(begin)

    def _note_captured(self, step: int) -> None:
        now = time.monotonic()
        self._job_end.saved(step, now)
        self._notes.append((now, _captured, (step, self.saver.nbytes)))

    def _note_blocked(self, begin: float) -> None:
        """Notes for how long each step that was handed over since ``begin``, the begin of a call, has held training up."""
        now = time.monotonic()
        if self._handed:
            for step in self._handed:
                self._notes.append((now, _blocked, (step, now - begin + self._held_up)))
            self._handed, self._held_up = [], 0.0
        if self._saver is not None and self._saver.pending is not None:
            self._held_up = now - begin

    def _stop(self, step: int, number: int) -> None:
        """Commits ``step`` and ends training, because a rank has received the signal ``number``, the job's end is near (``JOB_ENDS``), or
        it is the last step of a rehearsal (``REHEARSAL_ENDS``). All ranks call it after the same step.

        The job may have no time for what Keras does at the end of an epoch. So an epoch's last step is committed before, without what
        callbacks do there. Where the next start goes on inside of an epoch, training ends with the next update then: that checkpoint has
        the epoch's end."""
        if self._ends_later and step in self._saved and not self._epochs.over:
            self._arm()
            return  # this batch was no update: gradients are accumulated, or the loss scale has skipped it
        self.schedule.stop()
        inside = EPOCH in self._attachments.of_epochs and number != REHEARSAL_ENDS
        if inside and self._epochs.another and not self._ends_later:
            self._ends_later = number
        else:
            self._end_by(number)
        self._hand_over()
        begin = time.monotonic()
        if step not in self._saved and not self._uncaptured.leaves_out(step, self.schedule):
            self._save(step, self.saver.take, hold=self._epochs.over)
            self._note_blocked(begin)
        self._release(epoch_open=True)
        self._commits.drain()
        self._arm()

    def _end_by(self, number: int) -> None:
        """Ends training because of ``number``, as for ``_stop``."""
        self._commits.going_on, self.stopped = False, True
        name = stop_name(number, None if self._rehearsal is None else self._rehearsal.name)
        self._events.emit(Stop(step=self._open_run.steps.now(), signal=name))

    def _kill_if_rehearsed(self, step: int) -> None:
        """Waits until the checkpoints are committed, and kills this process, if a rehearsal asks for it when ``step`` is saved. All ranks
        call it after the same step."""
        if self._rehearsal is None or not self._rehearsal.kills_at(step, self._open_run.attempt.step):
            return
        self._commits.going_on = False
        self._hand_over()
        self._commits.drain()
        signal.raise_signal(signal.SIGKILL)

    def _reserve(self) -> None:
        """Waits until there is memory for the next capture, which there is not before a step that is held is handed over."""
        self._reserve_later = self.saver.held
        if self._reserve_later:
            return
        try:
            # Not while a late capture waits for the next step, for the other ranks have not handed it over either.
            if self.saver.pending is None:
                self._storage.admit()
            self.saver.reserve()
        except EngineError as error:
            self._commits.fail(error)

    def measured(self, values: Mapping[str, Any], step: int | None = None, epoch: int | None = None) -> None:
        """Gives metrics to retention. ``step``: at which they were taken, None for the present one; ``epoch``: the number of epochs done,
        at the end of one."""
        step = self._open_run.steps.now() if step is None else step
        if epoch is not None:
            self._described.epoch_ended(epoch, step, values)
        self._commits.measured(step, values, epoch)
