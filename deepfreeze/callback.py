"""The Keras callback: saves the training state as it trains, and resumes it. Imports TensorFlow.

Everything it does is done by the parts below it: ``attempt`` starts (lock, recovery, restore), ``plan`` says when,
``freeze`` captures and saves. This file is their order.
"""

from __future__ import annotations

import os
import time
import warnings
import weakref
from dataclasses import dataclass, field
from typing import Any

from deepfreeze.attempt import Attempt
from deepfreeze.core import world as worlds
from deepfreeze.core.config import Options
from deepfreeze.core.errors import EngineError, Error, OptionError
from deepfreeze.core.hooks import Hooks
from deepfreeze.core.keras_model import build_optimizer, tf_variable
from deepfreeze.core.placement import balanced
from deepfreeze.freeze import handoff
from deepfreeze.freeze.capture import Capture, refuse
from deepfreeze.freeze.saver import Saver
from deepfreeze.plan.policy import Policy, as_policy
from deepfreeze.progress import Progress
from veloc_bindings import EXTERNAL, OK, Report


class CheckpointWarning(UserWarning):
    """Something went wrong that training survives."""


@dataclass
class Stats:
    """What a ``Checkpoint`` has done so far on this rank."""

    resumed: int | None = None  # the step that was restored
    steps: list[int] = field(default_factory=list)  # captured
    blocking: list[float] = field(default_factory=list)  # seconds that each of them held up training
    committed: dict[int, float] = field(default_factory=dict)  # step -> seconds from hand-over to commit
    local: dict[int, float] = field(default_factory=dict)  # step -> seconds from hand-over to the local tier
    nbytes: int = 0  # of this rank's part of one checkpoint


class Checkpoint(Hooks):
    """Saves the training state every ``every`` steps into ``run``, and resumes from the newest checkpoint there.

    Args:
        run: directory of this training job on storage that all ranks share; made if its parent exists.
        every: steps between checkpoints, or a policy from ``deepfreeze.plan``.
        local: node-local storage: "auto" (memory-backed or disk, by free space), a directory, or None for none.
        keep: committed checkpoints to keep.
        resume: "auto" restores the newest checkpoint if there is one, "required" insists on one, "off" starts from the model
            as it is.
        wait_for: the level that training waits for at each checkpoint: "captured" (not at all), "local" (on node-local
            storage), "external" (committed: the synchronous mode).
        in_flight: checkpoints whose shards may be in memory at once; when more are due, training waits.
        on_error: "raise" or "warn", at the next batch, when a checkpoint failed.
        final: also save the last step, if it has no checkpoint when training ends.
        state: "full" (weights, optimizer, seeds) or "weights".
        more: slots (checkpoints per rank on the local tier, 2), writers (threads, 2), chunk_bytes (4 MiB), timeout
            (seconds for every wait, 600), world (an mpi4py communicator in place of Horovod's ranks), verbose (1: a progress
            line while training's end waits for the last commit).

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
            **more,
        )
        self._policy = as_policy(every)
        self._run = os.path.abspath(os.fspath(run))
        self._attempt: Attempt | None = None
        self._capture: Capture | None = None
        self._saver: Saver | None = None
        self._target = -1
        self._done = -1  # the last step captured
        self.stats = Stats()

    def open(self, model: Any) -> int:
        """Takes the run's lock, finishes or clears what a dead job left, and restores ``model``. Returns the step to go on
        from (0 in a fresh run). ``fit`` does it if you don't; do it yourself to start the input at the right batch."""
        if self._attempt is None:
            refuse(model)
            handoff.load()
            build_optimizer(model)
            world = worlds.current(self._options.world)
            self._attempt = Attempt.start(self._run, model, self._options, world)
            self.stats.resumed = self._attempt.resumed
        return self._attempt.step

    def on_train_begin(self, logs: Any = None) -> None:
        """Opens the run and puts the capture into the graph, before it is traced."""
        self._close_saver()
        step = self.open(self.model)
        assert self._attempt is not None
        world = self._attempt.world
        self._capture = Capture(self.model, self._options.state, world.rank, world.size, balanced)
        self._done = step
        self._step = step
        self._arm(step)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Hands over what the last execution captured, if it did."""
        begin = time.perf_counter()
        step = self._iterations()
        if self._saver is None:
            self._open_saver()
            begin = time.perf_counter()
        self._hear()
        if step < self._target:
            return
        self._save(self._target, begin, captured=self._target)
        missed = self._policy.next_step(self._done)
        if missed <= step:
            self._fail(
                OptionError(
                    where="every=",
                    expected=f"at most one checkpoint per execution, which is {step - self._step} steps here",
                    found=f"steps {self._done} and {missed} due in the same one",
                    todo="raise every=, or lower steps_per_execution",
                )
            )
        self._step = step
        self._arm(step)

    def on_train_end(self, logs: Any = None) -> None:
        """Saves the last step and returns when everything in flight is committed."""
        try:
            if self._saver is not None and self._capture is not None:
                step = self._iterations()
                if self._options.final and step > self._done:
                    self._capture.take()
                    self._save(step, time.perf_counter(), captured=None)
                self._drain()
        finally:
            self.close()

    def close(self) -> None:
        """Stops the engine, takes the capture out of the model and gives the run's lock back. Safe to call twice."""
        self._close_saver()
        if self._attempt is not None:
            self._attempt.close()
            self._attempt = None

    def _arm(self, step: int) -> None:
        assert self._capture is not None
        self._target = self._policy.next_step(step)
        self._capture.arm(self._target)

    def _iterations(self) -> int:
        return int(tf_variable(self.model.optimizer.iterations).numpy())

    def _open_saver(self) -> None:
        assert self._attempt is not None and self._capture is not None
        attempt = self._attempt
        self._saver = Saver(self.model, self._capture, attempt.target, attempt.world, self._options)
        self.stats.nbytes = self._saver.nbytes
        # If training dies of an exception, on_train_end never comes.
        weakref.finalize(self, self._saver.close)

    def _save(self, step: int, begin: float, captured: int | None) -> None:
        assert self._saver is not None
        try:
            self._saver.save(step, captured)
        except EngineError as error:
            self._fail(error)
        self._done = step
        self.stats.steps.append(step)
        self.stats.blocking.append(time.perf_counter() - begin)

    def _hear(self) -> None:
        assert self._saver is not None
        for report in self._saver.poll():
            self._note(report)

    def _note(self, report: Report) -> None:
        if report.step < 0:
            warnings.warn(report.message, CheckpointWarning, stacklevel=4)
        elif report.code != OK:
            self._fail(
                EngineError(
                    where=os.path.join(self._run, f"step {report.step}"),
                    expected="the checkpoint to be committed",
                    found=report.message,
                    todo="mend what the message names; older checkpoints are untouched and training can go on",
                )
            )
        else:
            if report.local_s >= 0:
                self.stats.local[report.step] = report.local_s
            if report.level == EXTERNAL:
                self.stats.committed[report.step] = report.external_s

    def _drain(self) -> None:
        assert self._saver is not None and self._attempt is not None
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
        if self._options.on_error == "warn" and not isinstance(error, OptionError):
            warnings.warn(str(error), CheckpointWarning, stacklevel=4)
            return
        self.close()
        raise error

    def _close_saver(self) -> None:
        saver, self._saver = self._saver, None
        if saver is not None:
            saver.close()
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.close()
