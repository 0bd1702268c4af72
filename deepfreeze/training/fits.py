"""The fits of a program: which one comes, and which of its epochs an earlier job has trained already."""

from __future__ import annotations

from dataclasses import replace

from deepfreeze.errors import Error
from deepfreeze.format.position import Position
from deepfreeze.notices import Notify
from deepfreeze.plan.epochs import Fit, GoingOn, going_on, other_batches
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.ranks.world import World, on_rank_0, together
from deepfreeze.store.run import Run
from deepfreeze.training import attempt_lines
from deepfreeze.training.start import Start

# By the id of a run: how many fits of this process have ended in it. A program that is started again begins with the same fits.
_ended: dict[str, int] = {}


class Fits:
    """The fits of one ``Checkpoint``, one after the other: ``settle`` when its run is open, ``begin``, and ``end`` unless an exception
    or a signal has ended it. The training thread of every rank calls the methods, in the same order.

    ``behind``: whether the present ``fit`` comes after the one of the restored checkpoint; ``ahead``: whether it comes before that. Both
    are False where it is not known."""

    def __init__(self, resume_epochs: bool) -> None:
        """``resume_epochs``: the option of this name."""
        self._wanted = resume_epochs
        self._restored: tuple[int, Position | None] = (-1, None)  # the step that was restored last, and its position
        self._going_on: GoingOn | None = None
        self._run_id = ""
        self.behind = self.ahead = False

    def leave_to_program(self) -> None:
        """The program has called ``open``: it chooses the epochs from now on."""
        self._wanted = False

    def foresee(self, run: str, fit: Fit, world: World) -> int:
        """Collective. The epoch with which ``fit`` will probably go on, looked up before the run is open: the model that is to be restored
        is built by its first batch, and then its first epoch has begun. If ``fit`` is finished, its last epoch: without an epoch there is
        no batch, and the model would never be restored. The start may find another checkpoint. If it commits an unfinished one of a later
        epoch, this epoch is trained again and the last one cut short; if the newest is damaged, epochs are left out."""

        def look() -> int:
            try:
                found = Run.open(run)
                newest = found.newest()
                position = None if newest is None else Position.of(found.manifest(newest).values)
                plan = going_on(position, _ended.get(found.run_id, 0), fit)
            except Error:
                return 0  # the start, which comes next, says what is wrong
            return 0 if plan is None else max(0, min(plan.epoch, fit.epochs - 1))

        return on_rank_0(world, look) if self._wanted else 0

    def settle(self, fit: Fit | None, attempt: Start, again: bool, notify: Notify, stopped: bool = False) -> str:
        """Collective. Decides which epochs of ``fit`` are trained, in the attempt that has just begun; None: it is no fit. ``again``:
        the model has kept its values, and was not restored; ``stopped``: a callback had ended the checkpoint's ``fit``. Returns how the
        line goes on that says where training begins.

        The ranks go by rank 0's checkpoint, and only if ``fit`` is the same on all of them."""
        self._run_id, self._going_on = attempt.target.run_id, None
        self.behind = self.ahead = False
        if not again:
            self._restored = (-1, None)
        if fit is None:
            return ""
        if (self._restored[1] if again else attempt.resumed) is None:
            return ""
        number, world = self._number, attempt.world

        def found() -> tuple[Fit, int, Position | None, bool]:
            position = _position(attempt, again, self._restored) if world.rank == 0 else None
            return fit, number, position, stopped

        rows = together(world, found) if self._wanted else []
        position = rows[0][2] if rows else None
        if not again:
            self._restored = (attempt.step, position)
        if position is None or any(row[:2] != rows[0][:2] for row in rows):
            return ""
        self.behind, self.ahead = number > position.fit, number < position.fit
        plan = going_on(position, number, fit, rows[0][3])
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

    def begin(self, fit: Fit) -> FitPosition:
        """To be called after ``settle``. Returns what counts the batches of this ``fit``."""
        return FitPosition(self._number, fit, self._going_on)

    def end(self) -> None:
        """The ``fit`` has come to its end: the next one of this run is another."""
        _ended[self._run_id] = self._number + 1

    @property
    def _number(self) -> int:
        return _ended.get(self._run_id, 0)


def _position(attempt: Start, again: bool, restored: tuple[int, Position | None]) -> Position | None:
    """On rank 0: the position of the checkpoint that the model has just been restored from, or was restored from before a ``fit`` that had
    nothing to train. None if there is none."""
    if again:
        step, position = restored
        return position if step == attempt.step else None
    return Position.of(Run.open(attempt.target.run).manifest(attempt.step).values)
