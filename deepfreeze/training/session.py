"""One ``fit``, or one hand-written loop, from its beginning to its end: captures the steps that are due and hands them to the engine."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from typing import Any

from deepfreeze.errors import EngineError, Error, OptionError
from deepfreeze.frameworks.framework import Captured
from deepfreeze.freeze.agreed_structure import agree
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.policy import Policy
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.ranks import world as worlds
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.state.attachments import Attachments
from deepfreeze.state.model_config import model_config
from deepfreeze.store.target import Target
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.training.checkpoint_warning import warn
from deepfreeze.training.engine_reports import note, unlike
from deepfreeze.training.installation import Installation
from deepfreeze.training.open_run import OpenRun
from deepfreeze.training.options import Options
from deepfreeze.training.progress import Progress
from deepfreeze.training.stats import Newest, Stats

log = logging.getLogger("deepfreeze")

# The replicas are compared in the first checkpoints of a training.
_FIRST = 2
# Executions after which Horovod's own callback has made the ranks alike, wherever it stands in the list of callbacks.
_SETTLED = 2


class Session:
    """From construction to ``end``. The training thread calls ``executed`` after every execution of the train function, on every rank.
    An execution is one step, or several steps if captures are taken in the graph. After an exception the session can't go on, and
    its run is to be closed."""

    def __init__(
        self,
        opened: OpenRun,
        installation: Installation,
        policy: Policy,
        attachments: Attachments,
        options: Options,
        stats: Stats,
        saved: Newest[int],
    ) -> None:
        """Collective. ``opened`` closes what this session opens; ``saved``: the model's steps that are saved already, to which this
        session adds its own."""
        self._opened, self._installation = opened, installation
        self._attachments, self._options = attachments, options
        self._stats, self._saved = stats, saved
        self._saves = 0
        self._going_on = True  # there are steps to come, in which the ranks can agree
        self._began = False  # there was a step
        self._last: tuple[int, Captured] | None = None  # the state that ``keep`` was called for
        self._saver: Saver | None = None
        world = opened.attempt.world
        self._agreement = Agreement(world, options.on_sigterm == "checkpoint", installation.maximum)
        opened.closing.callback(self._agreement.close)
        alike = world.size == 1 or len(set(world.gather(installation.capture.fingerprint()))) == 1
        self._unlike = 0 if alike else _SETTLED  # executions after which the ranks are compared once more
        if installation.agreed is not None:
            self._saver = self._open_saver()
        # Horovod's own callback makes the ranks alike only after the first step; captured before that, they would be mixed.
        self._schedule = Schedule(policy, opened.attempt.step, captures=alike, inside=installation.in_graph)
        installation.capture.arm(self._schedule.target)

    @property
    def saver(self) -> Saver:
        """Opened when the model's variables are all known: after the first execution, or at once if an earlier session of the model
        has left its installation."""
        if self._saver is None:
            self._saver = self._first_saver()
        return self._saver

    def executed(self) -> bool:
        """Hands over what the last execution captured, if it did. Whether training may go on."""
        saver, self._began = self.saver, True
        begin = time.perf_counter()
        step = self._opened.steps.now()
        self._hear()
        schedule = self._schedule
        done = schedule.ended(step)
        captured = done.captured
        if captured is not None:
            self._save(captured, lambda: saver.collect(captured))
        self._note_passed(done)
        if self._unlike:
            self._look_again(step)
        agreed = self._agreement.settle()
        steps = max(1, done.steps)
        if agreed.stop:
            self._stop(step, agreed.stop)
        elif schedule.aim(agreed.skip):
            self._installation.capture.arm(schedule.target)
        if schedule.within(steps):
            self._reserve()  # the next execution may capture: waiting here, an interrupt is heard
        if self._options.when_full == "skip":
            # All ranks must know before that execution begins.
            due = schedule.after_next(steps)
            if due is not None and saver.has_room(schedule.within(steps)):
                due = None
            self._agreement.skip(due or 0)
        if captured is not None:
            self._stats.note_more_blocking(captured, time.perf_counter() - begin)
        return self._going_on

    def epoch_ended(self) -> None:
        """Keras finds the end of data of unknown size by one step more, which fails for want of a batch: but the step is counted.
        Nothing captures in it, so if it is due it is taken now."""
        step, schedule = self._opened.steps.now(), self._schedule
        if self._saver is None or step == schedule.step:
            return
        done = schedule.ended(step)
        if done.captured is not None:
            self._save(step, self._saver.take)
        self._note_passed(done)
        if schedule.aim(0):
            self._installation.capture.arm(schedule.target)

    def keep(self) -> None:
        """Keeps the state as it is for the final checkpoint, whatever happens to the model from now on."""
        step = self._opened.steps.now()
        if self._options.final and self._saver is not None and step not in self._saved:
            self._last = (step, self._saver.take())

    def end(self) -> None:
        """Saves the last step and returns when everything in flight is committed."""
        self._going_on = False
        if self._saver is None or not self._began:
            return  # there was no step
        step, take, last = self._opened.steps.now(), self._saver.take, self._last
        if self._options.final and step not in self._saved:
            self._save(step, lambda: last[1] if last is not None and last[0] == step else take())
        self._last = None
        self._drain()
        if self._agreement.failure is not None:  # training ended before all ranks knew
            raise self._agreement.failure

    def _first_saver(self) -> Saver:
        """After the model's first execution with captures."""
        world, installation = self._opened.attempt.world, self._installation
        capture = installation.capture
        worlds.each(world, capture.check_applied)
        capture.forget_unfinished()
        return self._open_saver()

    def _open_saver(self) -> Saver:
        attempt, installation = self._opened.attempt, self._installation
        target, world = attempt.target, attempt.world
        capture = installation.capture
        state = capture.state if installation.agreed is not None else capture.state.grown()
        if self._options.save_config:
            # Before the attempt's first checkpoint, so that each of its checkpoints has it.
            worlds.on_rank_0(world, lambda: _store_config(state.model, target))
        installation.agreed = agree(state, self._attachments, world, installation.agreed)
        saver = Saver(installation.agreed, capture, self._attachments, target, world, self._options.saver())
        self._opened.closing.callback(saver.close)
        self._stats.nbytes = saver.nbytes
        return saver

    def _save(self, step: int, collect: Callable[[], Captured]) -> None:
        begin = time.perf_counter()
        often, count = self._options.check_replicas, self._saves
        self._saves += 1
        try:
            self.saver.save(step, collect(), compare=often > 0 and (count < _FIRST or count % often == 0))
        except EngineError as error:
            self._fail(error)
            return
        self._saved.append(step)
        self._stats.note_capture(step, time.perf_counter() - begin)

    def _note_passed(self, done: Execution) -> None:
        """Notes a step that was due and not captured."""
        if done.skipped is not None:
            log.info("no room for another checkpoint in memory: step %d was skipped", done.skipped)
            self._stats.skipped.append(done.skipped)
        if done.missed is not None:
            if done.captured is not None:
                self._fail(too_often(done.captured, done.missed, done.steps))
            log.warning("the ranks were not alike when training began: step %d is not saved", done.missed)

    def _look_again(self, step: int) -> None:
        """Compares the ranks' weights once more after some executions, if the weights differed when training began. The first
        checkpoint, which names the tensor that differs, may be many steps away; this warning comes at once."""
        self._unlike -= 1
        if self._unlike:
            return
        attempt = self._opened.attempt
        prints = attempt.world.gather(self._installation.capture.fingerprint())
        others = [rank for rank, one in enumerate(prints) if one != prints[0]]
        if others and attempt.world.rank == 0:
            warn(unlike(attempt.target.run, step, others))

    def _stop(self, step: int, number: int) -> None:
        """All ranks, after the same step: commits it and ends training."""
        self._going_on = False
        self._schedule.stop()
        self._stats.stopped = signal.Signals(number).name
        log.warning("%s: committing step %d, then training ends", self._stats.stopped, step)
        if step not in self._saved:
            self._save(step, self.saver.take)
        self._drain()

    def _reserve(self) -> None:
        try:
            self.saver.reserve()
        except EngineError as error:
            self._fail(error)

    def _hear(self) -> None:
        """Takes in the engine's reports."""
        try:
            reports = self.saver.poll()
        except EngineError as failure:
            self._fail(failure)
            return
        for report in reports:
            error = note(report, self._opened.attempt.target.run, self.saver.replicated, self._stats)
            if error is not None:
                self._fail(error)

    def _drain(self) -> None:
        begin, saver = time.monotonic(), self.saver
        shown = bool(self._options.verbose) and self._opened.attempt.world.rank == 0
        with Progress("committing", shown) as progress:
            while not saver.drain(0.5):
                if saver.stalled(begin):
                    raise saver.give_up()
                self._hear()
                progress.update(f"step {', '.join(map(str, saver.unfinished))}")
        self._hear()

    def _fail(self, error: Error) -> None:
        """Raises, warns, or tells the other ranks, as the option ``on_error`` says."""
        if isinstance(error, OptionError):
            raise error  # all ranks find it at this step
        if self._options.on_error == "warn":
            warn(error)
        elif self._going_on and self._opened.attempt.world.size > 1:
            self._agreement.fail(error)
        else:
            raise self._agreement.failure or error  # training may end before all ranks know of an earlier one


def too_often(first: int, second: int, steps: int) -> OptionError:
    """The error for two steps that are due in one execution of ``steps`` steps, which can capture one."""
    return OptionError(
        where="every=",
        expected=f"at most one checkpoint per execution, which is {steps} steps here",
        found=f"steps {first} and {second} due in the same one",
        todo="raise every=, or lower steps_per_execution",
    )


def _store_config(model: Any, target: Target) -> None:
    WritableRun.open(target.run).store_config(model_config(model, target.run_id, target.attempt))
