"""The fits of a program: which one comes, and which of its epochs an earlier job has trained already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepfreeze.errors import Error
from deepfreeze.format.manifest_values import INPUT
from deepfreeze.format.position import Position
from deepfreeze.notices import Notify
from deepfreeze.plan.epochs import Fit, GoingOn, going_on, going_on_in_data, other_batches
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.process_state import PROCESS
from deepfreeze.ranks.world import World, on_rank_0, together
from deepfreeze.store.run import Run
from deepfreeze.training import attempt_lines
from deepfreeze.training.input_position import InputPosition
from deepfreeze.training.start import Start


@dataclass(frozen=True)
class _Restored:
    """The checkpoint that the model was restored from last. ``step``: -1 for none; ``position``: None if the checkpoint has none, or if it
    was not asked for; ``epochs``: how many epochs the data are further than the position's epoch, None if their place is not known."""

    step: int = -1
    position: Position | None = None
    epochs: int | None = None


class Fits:
    """The fits of one ``Checkpoint``, one after the other: ``opened`` when its run is open, then ``choose`` and ``begin`` for each ``fit``,
    and ``end`` unless an exception or a signal has ended it. The training thread of every rank calls the methods, in the same order.

    ``behind``: whether the present ``fit`` comes after the one of the restored checkpoint; ``ahead``: whether it comes before that. Both
    are False where it is not known."""

    def __init__(self, resume_epochs: bool, position: InputPosition) -> None:
        """``resume_epochs``: the option of this name; ``position``: the place in the job's data."""
        self._wanted, self._input = resume_epochs, position
        self._restored = _Restored()
        self._chosen: Fit | None = None  # the ``fit`` whose epochs were chosen last
        self._going_on: GoingOn | None = None
        self._run_id = ""
        self.behind = self.ahead = False

    def leave_to_program(self) -> None:
        """The program has called ``open``: it chooses the epochs from now on, unless the data know their place."""
        self._wanted = self._wanted and self._input.data is not None

    def foresee(self, run: Callable[[], str], fit: Fit, world: World) -> int:
        """Collective. The epoch with which ``fit`` will probably go on, looked up before the run is open: the model that is to be restored
        is built by its first batch, and then its first epoch has begun. If ``fit`` is finished, its last epoch: without an epoch there is
        no batch, and the model would never be restored. The start may find another checkpoint. If it commits an unfinished one of a later
        epoch, this epoch is trained again and the last one cut short; if the newest is damaged, epochs are left out. ``run``: returns the
        run's path; is called on rank 0 alone."""

        def look() -> int:
            try:
                found = Run.open(run())
                newest = found.newest()
                position = None if newest is None else Position.of(found.manifest(newest).values)
                plan = going_on(position, PROCESS.ended_fits.get(found.run_id, 0), fit)
            except Error:
                return 0  # the start, which comes next, says what is wrong
            return 0 if plan is None else max(0, min(plan.epoch, fit.epochs - 1))

        return on_rank_0(world, look) if self._wanted else 0

    def opened(self, attempt: Start, again: bool, notify: Notify) -> None:
        """Collective. The ``attempt`` has just begun. ``again``: the model has kept its values, and was not restored."""
        self._run_id, self._going_on = attempt.target.run_id, None
        if again:
            if self._restored.step != attempt.step:
                self._restored = _Restored()
            return
        self._restored = _Restored()
        world, step = attempt.world, attempt.step
        values: Mapping[str, Any] = {}
        if attempt.resumed is not None:
            values = on_rank_0(world, lambda: Run.open(attempt.target.run).manifest(step).values)
            data = values.get(INPUT)
            if self._input.data is None and isinstance(data, str) and data.isidentifier() and world.rank == 0:
                notify("warning", attempt_lines.no_data(step, data))
        if attempt.resumed is None or not self._wanted:
            self._input.forget()
            return
        position = Position.of(values)
        epochs = self._input.epochs_further()
        if self._input.data is not None and epochs is None and world.rank == 0:
            notify("warning", attempt_lines.no_input(step))
        if position is not None and self._input.cuts_short(position) and world.rank == 0:
            notify("warning", attempt_lines.cut_short(position))
        self._restored = _Restored(step, position, epochs)

    def restored(self, step: int, position: Position) -> None:
        """To be called after ``opened``: the values that the model has kept are those at this ``position`` of the interrupted ``fit``."""
        if self._wanted:
            self._restored = _Restored(step, position, self._input.epochs_further())

    def choose(self, fit: Fit, attempt: Start, notify: Notify, stopped: bool) -> str:
        """Collective. Decides which epochs of ``fit`` are trained. ``stopped``: a callback had ended the checkpoint's ``fit``. Returns how
        the line goes on that says where training begins.

        The ranks go by rank 0's checkpoint, and only if ``fit`` is the same on all of them."""
        self._going_on, self._chosen = None, fit
        position, number, world = self._restored.position, self._number, attempt.world
        self.behind = self.ahead = False
        if not self._wanted or position is None:
            return ""
        rows = together(world, lambda: (fit, number, stopped, self._restored.epochs, *self._input.inside))
        if any(row[:2] != rows[0][:2] for row in rows):
            return ""
        self.behind, self.ahead = number > position.fit, number < position.fit
        plan = self._plan(position, fit, *rows[0][2:])
        if plan is None:
            return attempt_lines.other_batches(fit, position) if other_batches(position, number, fit) else ""
        if fit.late and fit.begun is not None:
            # The epoch has begun. Training ends where it should also if the start has committed a checkpoint that could not be foreseen.
            if world.rank == 0 and plan.epoch < fit.begun and not plan.finished:
                notify("warning", attempt_lines.left_out(plan, fit.begun))
            plan = replace(plan, epoch=fit.begun)
        elif fit.begun is not None and plan.epoch != fit.begun:
            if world.rank == 0:
                notify("warning", attempt_lines.not_movable(plan))
            return ""
        self._going_on = plan
        return attempt_lines.going_on(plan, fit)

    def _plan(
        self, position: Position, fit: Fit, stopped: bool, epochs: int | None, batch: int, begun: bool
    ) -> GoingOn | None:
        if epochs is None:
            return going_on(position, self._number, fit, stopped)
        return going_on_in_data(position, self._number, fit, stopped, position.epoch + epochs, batch, begun)

    def begin(self, fit: Fit, attempt: Start, notify: Notify, stopped: bool) -> FitPosition:
        """Collective. Returns what counts the batches of this ``fit``. Chooses its epochs unless that was done when the run was opened."""
        if self._chosen is not fit:
            self.choose(fit, attempt, notify, stopped)
        return FitPosition(self._number, fit, self._going_on)

    @property
    def ended(self) -> bool:
        """Whether an earlier ``fit`` of this process has ended in the run."""
        return self._number > 0

    def end(self) -> None:
        """The ``fit`` has come to its end: the next one of this run is another."""
        PROCESS.ended_fits[self._run_id] = self._number + 1

    @property
    def _number(self) -> int:
        return PROCESS.ended_fits.get(self._run_id, 0)
