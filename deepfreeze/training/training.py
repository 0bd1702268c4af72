"""One training of one model with checkpoints: what the Keras callback and the hand-written loop have in common. Imports
TensorFlow.

Everything it does is done by the parts below it: ``attempt`` starts (lock, recovery, restore), ``plan`` says when,
``freeze`` captures and saves. This file is their order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from deepfreeze.errors import EngineError, Error, OptionError
from deepfreeze.frameworks.framework import Captured
from deepfreeze.frameworks.tensorflow import engine_buffers
from deepfreeze.frameworks.tensorflow.capture import Range, TensorFlowCapture
from deepfreeze.frameworks.tensorflow.engine_buffers import EngineBuffers
from deepfreeze.frameworks.tensorflow.generators import ProcessGenerators
from deepfreeze.frameworks.tensorflow.graph_buffers import GraphBuffers
from deepfreeze.frameworks.tensorflow.graph_maximum import TensorFlowMaximum
from deepfreeze.frameworks.tensorflow.refusals import refuse
from deepfreeze.frameworks.tensorflow.steps import Steps
from deepfreeze.freeze import bound_engine
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.placement import PLACEMENTS
from deepfreeze.plan.policy import Policy
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.ranks import world as worlds
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.same_model import require_same_model, require_same_options
from deepfreeze.state.attachments import Attachments
from deepfreeze.state.keras_objects import build_optimizer
from deepfreeze.state.model_config import model_config
from deepfreeze.state.training_state import TrainingState
from deepfreeze.store.run import directory
from deepfreeze.store.target import Target
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.training.checkpoint_warning import warn
from deepfreeze.training.engine_reports import note, unlike
from deepfreeze.training.holdings import Holdings
from deepfreeze.training.model_start import Attempt
from deepfreeze.training.options import Options
from deepfreeze.training.progress import Progress
from deepfreeze.training.stats import Newest, Stats

log = logging.getLogger("deepfreeze")

# The replicas are compared in the first checkpoints of a training.
_FIRST = 2
# Executions after which Horovod's own callback has made the ranks alike, wherever it stands in the list of callbacks.
_SETTLED = 2


class Training:
    """``open`` restores; then, for each training: ``begin``, ``executed`` after every execution of the train function,
    ``end``. ``close`` at any time.

    An execution is what runs between two calls: a step, or several if ``in_graph``.
    """

    def __init__(self, run: str, policy: Policy, options: Options, who: str = "deepfreeze.Checkpoint") -> None:
        """``who``: what the user has called, for messages."""
        self._who = who
        self._run, self._policy, self._options = run, policy, options
        self._attachments = Attachments(options.extra, ProcessGenerators() if options.rng == "all" else None)
        self._open = Holdings()
        self._closer: weakref.finalize | None = None
        self._trained: weakref.ref | None = None
        self._schedule = Schedule(policy, 0, captures=False)
        self._saves = 0  # in this training
        self._saved: Newest[int] = Newest()  # steps of this model
        self._going_on = False  # there are steps to come, in which the ranks can agree
        self._unlike = 0  # executions after which the ranks are compared once more
        self._last: tuple[int, Captured] | None = None  # the state that ``keep`` was called for
        self.stats = Stats()

    def open(self, model: Any) -> int:
        """Takes the run's lock, finishes or clears what a dead job left, and restores ``model``. Returns the step to go on
        from (0 in a fresh run). A model that was trained here before, or changed since it was opened, goes on as it is."""
        opened = self._open.attempt is not None and self._open.model() is model
        if opened and all(self._attempt.world.gather(self._is_as_opened(model))):
            return self._attempt.step
        self.close()
        world = worlds.current(self._options.world)
        require_same_options(world, {"run": self._run, "every": str(self._policy), **self._options.shared()})
        steps = worlds.each(world, lambda: self._prepare(model, world.in_graph))
        require_same_model(world, TrainingState.of(model).description())
        again = opened or (self._trained is not None and self._trained() is model)
        attempt = Attempt.start(self._run, model, steps, self._attachments, self._options, world, restores=not again)
        if not again:
            self.stats.resumed = attempt.resumed
        # What is newer belongs to another history: its numbers come again (a new optimizer, an older step restored).
        self._saved = Newest(step for step in self._saved if again and step <= attempt.step)
        self._open = Holdings(attempt, weakref.ref(model), steps)
        self._open.hold(attempt)
        # If training dies of an exception, nobody calls end.
        self._closer = weakref.finalize(self, self._open.close)
        return attempt.step

    def begin(self, model: Any, in_graph: bool, steps_per_execution: int = 1) -> None:
        """Opens the run and makes ready to capture: in the graph that is traced next, or between two executions."""
        # What lives outside of the graph has a state between two executions only.
        in_graph = in_graph and (steps_per_execution == 1 or not self._attachments)
        if self._open.capture is not None:
            self.close()  # the last training was interrupted
        self.open(model)
        attempt, world = self._attempt, self._attempt.world
        if in_graph and world.in_graph:
            with self._closing_on_error():
                require_same_model(world, TrainingState.of(model).description(), named=True)
        self._trained = weakref.ref(model)

        # One path on all ranks: it shows in the graph, which must be the same everywhere.
        against = "asked for" if self._options.capture == "graph" else engine_buffers.reason_against()
        reasons = [reason for reason in world.gather(against) if reason is not None]
        if reasons:
            log.info("capturing by TensorFlow's own ops: %s", reasons[0])

        def make() -> TensorFlowCapture:
            if in_graph:
                self._check_executions(steps_per_execution)
            state = TrainingState.of(model, self._options.state)
            placed = state.placed()
            shards = PLACEMENTS[self._options.placement]([tensor.spec for tensor in placed], world.size)[world.rank]
            ranges = [Range(placed[s.tensor], s.start, s.stop) for s in shards]
            buffers = GraphBuffers() if reasons else EngineBuffers()
            optimizer = self._options.optimizer
            # Held before the other ranks are heard of: if one of them fails, this rank's hooks must go too.
            return self._open.hold(
                TensorFlowCapture(state, ranges, world.rank, buffers, emit if in_graph else None, optimizer)
            )

        with self._closing_on_error():
            hears_sigterm = self._options.on_sigterm == "checkpoint"
            maximum = TensorFlowMaximum(world) if in_graph and world.in_graph else None
            emit = _nothing if maximum is None else maximum.emit
            self._open.agreement = self._open.hold(Agreement(world, hears_sigterm, maximum))
            capture = self._open.capture = worlds.each(world, make)
            alike = world.size == 1 or len(set(world.gather(capture.fingerprint()))) == 1
            self._unlike = 0 if alike else _SETTLED
        # Horovod's own callback makes the ranks alike only after the first step; captured before that, they would be mixed.
        self._schedule = Schedule(self._policy, attempt.step, captures=alike, inside=in_graph)
        self._last, self._saves, self._going_on = None, 0, True
        capture.arm(self._schedule.target)

    def executed(self) -> bool:
        """Hands over what the last execution captured, if it did. Whether training may go on."""
        begin = time.perf_counter()
        step = self._steps.now()
        if self._open.saver is None:
            with self._closing_on_error():
                self._open_saver()
            begin = time.perf_counter()
        self._hear()
        schedule = self._schedule
        done = schedule.ended(step)
        captured = done.captured
        if captured is not None:
            self._save(captured, lambda: self._saver.collect(captured))
        self._note_passed(done)
        if self._unlike:
            self._look_again(step)
        with self._closing_on_error():
            agreed = self._agreement.settle()
        steps = max(1, done.steps)
        if agreed.stop:
            self._stop(step, agreed.stop)
        elif schedule.aim(agreed.skip):
            self._capture.arm(schedule.target)
        if schedule.within(steps):
            self._reserve()  # the next execution may capture: waiting here, an interrupt is heard
        if self._options.when_full == "skip":
            # All ranks must know before that execution begins.
            due = schedule.after_next(steps)
            if due is not None and self._saver.has_room(schedule.within(steps)):
                due = None
            self._agreement.skip(due or 0)
        if captured is not None:
            self.stats.note_more_blocking(captured, time.perf_counter() - begin)
        return self._going_on

    def epoch_ended(self) -> None:
        """Keras finds the end of data of unknown size by one step more, which fails for want of a batch: but the step is counted.
        Nothing captures in it, so if it is due it is taken now."""
        step, schedule = self._steps.now(), self._schedule
        if self._open.saver is None or step == schedule.step:
            return
        done = schedule.ended(step)
        if done.captured is not None:
            self._save(step, self._saver.take)
        self._note_passed(done)
        if schedule.aim(0):
            self._capture.arm(schedule.target)

    def keep(self) -> None:
        """Keeps the state as it is for the final checkpoint, whatever happens to the model from now on."""
        step = self._steps.now()
        if self._options.final and self._open.saver is not None and step not in self._saved:
            self._last = (step, self._saver.take())

    def end(self) -> None:
        """Saves the last step and returns when everything in flight is committed."""
        self._going_on = False
        try:
            if self._open.saver is not None:
                step = self._steps.now()
                if self._options.final and step not in self._saved:
                    last = self._last
                    self._save(step, lambda: last[1] if last is not None and last[0] == step else self._saver.take())
                self._last = None
                self._drain()
                if self._agreement.failure is not None:  # training ended before all ranks knew
                    raise self._agreement.failure
        finally:
            self.close()

    def close(self) -> None:
        """Stops the engine, takes the capture out of the model and gives the run's lock back. Safe to call twice."""
        if self._closer is not None:
            self._closer.detach()
            self._closer = None
        held, self._open = self._open, Holdings()
        held.close()

    @property
    def _attempt(self) -> Attempt:
        assert self._open.attempt is not None
        return self._open.attempt

    @property
    def _steps(self) -> Steps:
        assert self._open.steps is not None
        return self._open.steps

    @property
    def _capture(self) -> TensorFlowCapture:
        assert self._open.capture is not None
        return self._open.capture

    @property
    def _agreement(self) -> Agreement:
        assert self._open.agreement is not None
        return self._open.agreement

    @property
    def _saver(self) -> Saver:
        assert self._open.saver is not None
        return self._open.saver

    def _is_as_opened(self, model: Any) -> bool:
        """Whether the open attempt still fits: the same optimizer counts, and stands where it stood."""
        optimizer = self._options.optimizer or getattr(model, "optimizer", None)
        return self._steps.counts(optimizer) and self._steps.now() == self._attempt.step

    def _prepare(self, model: Any, averages_in_graph: bool) -> Steps:
        optimizer = self._options.optimizer or getattr(model, "optimizer", None)
        refuse(model, optimizer, averages_in_graph, self._who)
        bound_engine.load()
        if optimizer is getattr(model, "optimizer", None):
            build_optimizer(model)
        return Steps(optimizer)

    def _check_executions(self, batches: int) -> None:
        """One execution can capture one step."""
        steps = -(-batches // self._steps.batches_per_step)
        first = self._policy.next_step(0)
        if (second := self._policy.next_step(first)) - first < steps:
            raise _too_often(first, second, steps)

    def _open_saver(self) -> None:
        attempt = self._attempt
        worlds.each(attempt.world, self._capture.check_applied)
        self._capture.forget_unfinished()
        model, target, world = self._open.model(), attempt.target, attempt.world
        if self._options.save_config:
            # Before the attempt's first checkpoint, so that each of its checkpoints has it.
            worlds.on_rank_0(world, lambda: _store_config(model, target))
        capture = self._capture
        self._open.saver = self._open.hold(
            Saver(capture.state.grown(), capture, self._attachments, target, world, self._options.saver())
        )
        self.stats.nbytes = self._saver.nbytes

    def _save(self, step: int, collect: Callable[[], Captured]) -> None:
        begin = time.perf_counter()
        often, count = self._options.check_replicas, self._saves
        self._saves += 1
        try:
            self._saver.save(step, collect(), compare=often > 0 and (count < _FIRST or count % often == 0))
        except EngineError as error:
            self._fail(error)
            return
        self._saved.append(step)
        self.stats.note_capture(step, time.perf_counter() - begin)

    def _note_passed(self, done: Execution) -> None:
        """What was due and not captured."""
        if done.skipped is not None:
            log.info("no room for another checkpoint in memory: step %d was skipped", done.skipped)
            self.stats.skipped.append(done.skipped)
        if done.missed is not None:
            if done.captured is not None:
                self._fail(_too_often(done.captured, done.missed, done.steps))
            log.warning("the ranks were not alike when training began: step %d is not saved", done.missed)

    def _look_again(self, step: int) -> None:
        """Compares the ranks' weights once more after some executions, if the weights differed when training began. The first
        checkpoint, which names the tensor that differs, may be many steps away; this warning comes at once."""
        self._unlike -= 1
        if self._unlike:
            return
        prints = self._attempt.world.gather(self._capture.fingerprint())
        others = [rank for rank, one in enumerate(prints) if one != prints[0]]
        if others and self._attempt.world.rank == 0:
            warn(unlike(self._run, step, others))

    def _stop(self, step: int, number: int) -> None:
        """All ranks, after the same step: commits it and ends training."""
        self._going_on = False
        self._schedule.stop()
        self.stats.stopped = signal.Signals(number).name
        log.warning("%s: committing step %d, then training ends", self.stats.stopped, step)
        if step not in self._saved:
            self._save(step, self._saver.take)
        self._drain()

    def _reserve(self) -> None:
        try:
            self._saver.reserve()
        except EngineError as error:
            self._fail(error)

    def _hear(self) -> None:
        try:
            reports = self._saver.poll()
        except EngineError as failure:
            self._fail(failure)
            return
        for report in reports:
            error = note(report, self._run, self._saver.replicated, self.stats)
            if error is not None:
                self._fail(error)

    def _drain(self) -> None:
        begin = time.monotonic()
        shown = bool(self._options.verbose) and self._attempt.world.rank == 0
        with Progress("committing", shown) as progress:
            while not self._saver.drain(0.5):
                if self._saver.stalled(begin):
                    raise self._saver.give_up()
                self._hear()
                progress.update(f"step {', '.join(map(str, self._saver.unfinished))}")
        self._hear()

    def _fail(self, error: Error) -> None:
        if isinstance(error, OptionError):
            self.close()  # all ranks find it at this step
            raise error
        if self._options.on_error == "warn":
            warn(error)
        elif self._going_on and self._attempt.world.size > 1:
            self._agreement.fail(error)
        else:
            first = self._agreement.failure or error  # training may end before all ranks know of an earlier one
            self.close()
            raise first

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


def _nothing() -> None:
    """Adds nothing to the graph: a single rank has nobody to agree with."""


def _store_config(model: Any, target: Target) -> None:
    WritableRun.open(target.run).store_config(model_config(model, target.run_id, target.attempt))


def absolute(run: Any) -> str:
    """The run's path, whatever directory the process changes to. ``OptionError`` if it is none."""
    return os.path.abspath(directory(run))


def _too_often(first: int, second: int, steps: int) -> OptionError:
    return OptionError(
        where="every=",
        expected=f"at most one checkpoint per execution, which is {steps} steps here",
        found=f"steps {first} and {second} due in the same one",
        todo="raise every=, or lower steps_per_execution",
    )
