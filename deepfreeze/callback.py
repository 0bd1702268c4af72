"""The Keras callback: saves the training state as it trains, and resumes it. Imports TensorFlow.

Everything it does is done by the parts below it: ``attempt`` starts (lock, recovery, restore), ``plan`` says when,
``freeze`` captures and saves. This file is their order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from deepfreeze.attempt import Attempt
from deepfreeze.core import world as worlds
from deepfreeze.core.config import Options
from deepfreeze.core.errors import EngineError, Error, OptionError
from deepfreeze.core.hooks import Hooks
from deepfreeze.core.keras_model import build_optimizer, tf_variable
from deepfreeze.core.placement import PLACEMENTS
from deepfreeze.freeze import engine_buffers, handoff
from deepfreeze.freeze.agreement import Agreement
from deepfreeze.freeze.capture import Capture, refuse
from deepfreeze.freeze.engine_buffers import EngineBuffers
from deepfreeze.freeze.graph_buffers import GraphBuffers
from deepfreeze.freeze.pieces import Captured
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.policy import Policy, as_policy
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.progress import Progress
from deepfreeze.stats import Stats
from veloc_bindings import DIVERGED, EXTERNAL, OK, Report

log = logging.getLogger("deepfreeze")

# The replicas are compared in the first checkpoints of a training.
_FIRST = 2


class CheckpointWarning(UserWarning):
    """Something went wrong that training survives."""


class Checkpoint(Hooks):
    """Saves the training state every ``every`` steps into ``run``, and resumes from the newest checkpoint there.

    Args:
        run: directory of this training job on storage that all ranks share; made if its parent exists.
        every: steps between checkpoints, or a policy from ``deepfreeze.plan``.
        local: node-local storage: "auto" (memory-backed or disk, by free space), a directory, or None for none.
        keep: committed checkpoints to keep.
        resume: "auto" restores the newest checkpoint if there is one, "required" insists on one, "off" starts from the model
            as it is. One that is damaged is moved to ``damaged/`` in the run, with a warning, and the next older one taken.
        wait_for: the level that training waits for at each checkpoint: "captured" (not at all), "local" (on node-local
            storage), "external" (committed: the synchronous mode).
        in_flight: checkpoints whose shards may be in memory at once; when more are due, training waits.
        on_error: "raise" or "warn", at the next batch, when a checkpoint failed.
        final: also save the last step, if it has no checkpoint when training ends.
        on_sigterm: "checkpoint": a SIGTERM to any rank commits the step at hand, on all of them, and ends ``fit``;
            ``stats.stopped`` then says so. "ignore" leaves the signal alone.
        when_full: "wait", or "skip" a checkpoint for which there is no room in memory on some rank: all ranks skip it.
        check_replicas: compare whole weights between the ranks at the first two checkpoints and at every k-th; 0: never.
        on_divergence: "warn" and commit the checkpoint marked as diverged, or "raise" and don't commit it, when they differ.
        state: "full" (weights, optimizer, seeds) or "weights".
        more: slots (checkpoints per rank on the local tier, 2), writers (threads, 2), chunk_bytes (4 MiB), nice (of the
            engine's threads, 10: the training goes first), placement ("per_layer": each layer cut over the ranks;
            "contiguous": one range of the file per rank), capture ("auto": into the engine's memory where TensorFlow lets
            the engine register its op; "graph": by TensorFlow's own ops alone), timeout (seconds for every wait, 600), world
            (an mpi4py communicator in place of Horovod's ranks), verbose (1: a progress line while training's end waits
            for the last commit).

    Raises ``OptionError`` here; ``RunError``, ``LockedError``, ``UnsupportedError``, ``StructureError``, ``CorruptError`` when
    training begins; ``EngineError``, ``WaitError`` while it goes on. After any of them nothing that was committed is lost.
    """

    def __init__(
        self,
        run: str | os.PathLike,
        every: int | Policy = 15,
        *,
        local: str | os.PathLike | None = "auto",
        keep: int = 2,
        resume: str = "auto",
        wait_for: str = "captured",
        in_flight: int = 2,
        on_error: str = "raise",
        final: bool = True,
        state: str = "full",
        on_sigterm: str = "checkpoint",
        when_full: str = "wait",
        check_replicas: int = 100,
        on_divergence: str = "warn",
        **more: Any,
    ) -> None:
        super().__init__()
        self._options = Options.of(
            local=local,
            keep=keep,
            resume=resume,
            wait_for=wait_for,
            in_flight=in_flight,
            on_error=on_error,
            final=final,
            state=state,
            on_sigterm=on_sigterm,
            when_full=when_full,
            check_replicas=check_replicas,
            on_divergence=on_divergence,
            **more,
        )
        self._policy = as_policy(every)
        self._run = _absolute(run)
        self._open = _Open()
        self._closer: weakref.finalize | None = None
        self._trained: weakref.ref | None = None
        self._schedule = Schedule(self._policy, 0, captures=False)
        self._saves = 0  # in this fit
        self._training = False  # there are steps to come, in which the ranks can agree
        self._last: tuple[int, Captured] | None = None  # the state at the end of the last epoch
        self.stats = Stats()

    def open(self, model: Any) -> int:
        """Takes the run's lock, finishes or clears what a dead job left, and restores ``model``. Returns the step to go on
        from (0 in a fresh run). ``fit`` does it if you don't; do it yourself to start the input at the right batch.

        A model that this callback has trained before goes on as it is."""
        if self._open.attempt is not None and self._open.model() is model:
            return self._open.attempt.step
        self.close()
        world = worlds.current(self._options.world)
        worlds.each(world, lambda: self._prepare(model))
        again = self._trained is not None and self._trained() is model
        attempt = Attempt.start(self._run, model, self._options, world, restores=not again)
        if not again:
            self.stats.resumed = attempt.resumed
        self._open = _Open(attempt, weakref.ref(model))
        # If training dies of an exception, on_train_end never comes.
        self._closer = weakref.finalize(self, self._open.close)
        return attempt.step

    def on_train_begin(self, logs: Any = None) -> None:
        """Opens the run and puts the capture into the graph, before it is traced."""
        if self._open.capture is not None:
            self.close()  # the last fit was interrupted
        self.open(self.model)
        attempt, world = self._attempt, self._attempt.world
        self._trained = weakref.ref(self.model)

        # One path on all ranks: it shows in the graph, which must be the same everywhere.
        against = "asked for" if self._options.capture == "graph" else engine_buffers.reason_against()
        reasons = [reason for reason in world.gather(against) if reason is not None]
        if reasons:
            log.info("capturing by TensorFlow's own ops: %s", reasons[0])

        def make() -> Capture:
            self._check_executions()
            buffers = GraphBuffers() if reasons else EngineBuffers()
            place = PLACEMENTS[self._options.placement]
            return Capture(self.model, self._options.state, world.rank, world.size, place, buffers, agreement.emit)

        with self._closing_on_error():
            agreement = self._open.agreement = Agreement(world, self._options.on_sigterm == "checkpoint")
            capture = self._open.capture = worlds.each(world, make)
            alike = world.size == 1 or len(set(world.gather(capture.fingerprint()))) == 1
        # Horovod's own callback makes the ranks alike only after the first step; captured before that, they would be mixed.
        self._schedule = Schedule(self._policy, attempt.step, captures=alike)
        self._last, self._saves, self._training = None, 0, True
        capture.arm(self._schedule.target)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Hands over what the last execution captured, if it did."""
        begin = time.perf_counter()
        step = self._iterations()
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
        with self._closing_on_error():
            agreed = self._agreement.settle()
        if agreed.stop:
            self._stop(step, agreed.stop)
        elif schedule.aim(agreed.skip):
            self._capture.arm(schedule.target)
        if schedule.within(done.steps):
            self._reserve()  # the next execution may capture: waiting here, an interrupt is heard
        if self._options.when_full == "skip":
            # All ranks must know before that execution begins.
            due = schedule.after_next(done.steps)
            if due is not None and self._saver.has_room(schedule.within(done.steps)):
                due = None
            self._agreement.skip(due or 0)
        if captured in self.stats.steps[-1:]:
            self.stats.blocking.append(time.perf_counter() - begin)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keeps the state of the last step: after the last epoch, Keras may replace weights by averages or by the best."""
        over = epoch + 1 == self.params.get("epochs") or self.model.stop_training
        step = self._iterations()
        if self._options.final and over and self._open.saver is not None and step not in self.stats.steps:
            self._last = (step, self._saver.take())

    def on_train_end(self, logs: Any = None) -> None:
        """Saves the last step and returns when everything in flight is committed."""
        self._training = False
        try:
            if self._open.saver is not None:
                step = self._iterations()
                if self._options.final and step not in self.stats.steps:
                    begin = time.perf_counter()
                    last = self._last
                    self._save(step, lambda: last[1] if last is not None and last[0] == step else self._saver.take())
                    if step in self.stats.steps[-1:]:
                        self.stats.blocking.append(time.perf_counter() - begin)
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
        opened, self._open = self._open, _Open()
        opened.close()

    @property
    def _attempt(self) -> Attempt:
        assert self._open.attempt is not None
        return self._open.attempt

    @property
    def _capture(self) -> Capture:
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

    def _prepare(self, model: Any) -> None:
        refuse(model)
        handoff.load()
        build_optimizer(model)

    def _check_executions(self) -> None:
        """One execution can capture one step."""
        steps = getattr(self.model, "steps_per_execution", None) or getattr(self.model, "_steps_per_execution", None)
        first = self._policy.next_step(0)
        if isinstance(steps, int) and (second := self._policy.next_step(first)) - first < steps:
            raise _too_often(first, second, steps)

    def _iterations(self) -> int:
        return int(tf_variable(self.model.optimizer.iterations).numpy())

    def _open_saver(self) -> None:
        attempt = self._attempt
        self._open.saver = Saver(self.model, self._capture, attempt.target, attempt.world, self._options)
        self.stats.nbytes = self._saver.nbytes

    def _save(self, step: int, collect: Callable[[], Captured]) -> None:
        often, count = self._options.check_replicas, self._saves
        self._saves += 1
        try:
            self._saver.save(step, collect(), check=often > 0 and (count < _FIRST or count % often == 0))
        except EngineError as error:
            self._fail(error)
            return
        self.stats.steps.append(step)

    def _note_passed(self, done: Execution) -> None:
        """What was due and not captured."""
        if done.skipped is not None:
            log.info("no room for another checkpoint in memory: step %d was skipped", done.skipped)
            self.stats.skipped.append(done.skipped)
        if done.missed is not None:
            if done.captured is not None:
                self._fail(_too_often(done.captured, done.missed, done.steps))
            log.warning("the ranks were not alike when training began: step %d is not saved", done.missed)

    def _stop(self, step: int, number: int) -> None:
        """All ranks, after the same step: commits it and ends ``fit``."""
        self._training = False
        self._schedule.stop()
        self.stats.stopped = signal.Signals(number).name
        log.warning("%s: committing step %d, then training ends", self.stats.stopped, step)
        if step not in self.stats.steps:
            self._save(step, self._saver.take)
        self._drain()
        self.model.stop_training = True

    def _reserve(self) -> None:
        try:
            self._saver.reserve()
        except EngineError as error:
            self._fail(error)

    def _hear(self) -> None:
        for report in self._saver.poll():
            self._note(report)

    def _note(self, report: Report) -> None:
        if report.step < 0:
            warnings.warn(report.message, CheckpointWarning, stacklevel=4)
        elif report.code == DIVERGED:
            self._fail(self._divergence(report))
        elif report.code != OK:
            self._fail(
                EngineError(
                    where=os.path.join(self._run, f"step {report.step}"),
                    expected="the checkpoint to be committed",
                    found=report.message.rstrip("."),
                    todo="mend what the message names; older checkpoints are untouched and training can go on",
                )
            )
        else:
            if report.diverged >= 0 and report.step not in self.stats.diverged:
                self.stats.diverged[report.step] = self._saver.replicated[report.diverged]
                warnings.warn(str(self._divergence(report)), CheckpointWarning, stacklevel=4)
            if report.local_s >= 0:
                self.stats.local[report.step] = report.local_s
            if report.level == EXTERNAL:
                self.stats.committed[report.step] = report.external_s

    def _divergence(self, report: Report) -> EngineError:
        """Rank 0 knows in what the ranks differ; the others only learn that the step failed."""
        return EngineError(
            where=os.path.join(self._run, f"step {report.step}"),
            expected="the same weights on all ranks",
            found=f"{report.message}: {self._saver.replicated[report.diverged]}",
            todo="make the ranks alike before training begins (BroadcastState), and average all gradients",
        )

    def _drain(self) -> None:
        deadline = time.monotonic() + self._options.timeout
        shown = bool(self._options.verbose) and self._attempt.world.rank == 0
        with Progress("committing", shown) as progress:
            while not self._saver.drain(0.5):
                if time.monotonic() > deadline:
                    raise self._saver.give_up()
                self._hear()
                progress.update(f"step {', '.join(map(str, self._saver.unfinished))}")
        self._hear()

    def _fail(self, error: Error) -> None:
        if isinstance(error, OptionError):
            self.close()  # all ranks find it at this step
            raise error
        if self._options.on_error == "warn":
            warnings.warn(str(error), CheckpointWarning, stacklevel=4)
        elif self._training and self._attempt.world.size > 1:
            self._agreement.fail(error)
        else:
            self.close()
            raise error

    @contextlib.contextmanager
    def _closing_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


@dataclass
class _Open:
    """What is open, and has to be closed in this order."""

    attempt: Attempt | None = None
    model: Callable[[], Any] = lambda: None
    agreement: Agreement | None = None
    capture: Capture | None = None
    saver: Saver | None = None

    def close(self) -> None:
        saver, self.saver = self.saver, None
        if saver is not None:
            saver.close()
        capture, self.capture = self.capture, None
        if capture is not None:
            capture.close()
        agreement, self.agreement = self.agreement, None
        if agreement is not None:
            agreement.close()
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            attempt.close()


def _absolute(run: Any) -> str:
    try:
        return os.path.abspath(os.fspath(run))
    except TypeError:
        todo = 'pass a path, e.g. "runs/nt3"'
        raise OptionError(where="run=", expected="a directory", found=repr(run), todo=todo) from None


def _too_often(first: int, second: int, steps: int) -> OptionError:
    return OptionError(
        where="every=",
        expected=f"at most one checkpoint per execution, which is {steps} steps here",
        found=f"steps {first} and {second} due in the same one",
        todo="raise every=, or lower steps_per_execution",
    )
