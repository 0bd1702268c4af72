"""The position of one ``fit``, counted by Keras's hooks. The optimizer's count of updates would not do: with gradient accumulation an
update takes several batches, and a skipped float16 update none."""

from __future__ import annotations

from deepfreeze.format.position import Position
from deepfreeze.plan.epochs import Fit, GoingOn


class FitPosition:
    """The position of one ``fit``. The training thread calls all methods, from Keras's hooks of the same names. ``going_on``: what was left
    of the ``fit`` when it began, None if it is trained from the beginning."""

    def __init__(self, number: int, fit: Fit, going_on: GoingOn | None) -> None:
        """``number``: how many fits of the run the program has ended before."""
        self.going_on = going_on
        self._number, self._fit = number, fit
        self._epoch = self._batch = self._last = self._begun = 0
        self._first = 0 if going_on is None else going_on.batch  # with which the next epoch begins
        begun = (fit.begins_at or 0) * (fit.batches or 0)
        self._trained = begun if going_on is None else going_on.trained

    def epoch_begin(self, epoch: int) -> None:
        """``epoch``: its number, from 0."""
        self._epoch, self._batch, self._first = epoch, self._first, 0
        self._begun = self._batch

    def train_batch_end(self, batch: int) -> None:
        """An execution of the train function has ended. ``batch``: the number of its last batch in the epoch, from 0."""
        # With steps_per_execution the last execution of an epoch may have fewer batches than Keras has numbered.
        done = min(batch + 1, self._fit.batches or batch + 1)
        self._last = done - self._batch
        self._batch = done
        self._trained += self._last

    def missed(self, batches: int) -> None:
        """An execution of so many ``batches`` has ended of which Keras has not told, because an exception came in between."""
        self.train_batch_end(self._batch + batches - 1)

    @property
    def trained(self) -> int:
        """How many batches of the ``fit`` are trained."""
        return self._trained

    @property
    def epoch(self) -> int:
        """The number of the epoch under way, 1 for the first one."""
        return self._epoch + 1

    @property
    def first_batches(self) -> int:
        """How many batches the last execution had if it was the first one of the epoch in this ``fit``, else 0."""
        return self._last if self._batch == self._begun + self._last else 0

    @property
    def begins_epoch(self) -> bool:
        """Whether the last execution was the first of several of its epoch."""
        return self.first_batches > 0 and self.batches_left != 0

    def epoch_steps(self, steps: int) -> int | None:
        """How many steps an epoch has, if the last execution had so many ``steps``. None if Keras does not know the number of batches."""
        return self._fit.batches * steps // self._last if self._fit.batches and self._last else None

    def steps_left(self, steps: int) -> int | None:
        """The number of steps that the ``fit`` has still to train, if the last execution had so many ``steps``. None if Keras does not know
        the number of batches."""
        if not (self._fit.batches and self._last):
            return None
        total = self._fit.batches * self._fit.epochs if self.going_on is None else self.going_on.total
        return max(0, total - self._trained) * steps // self._last

    @property
    def batches_left(self) -> int | None:
        """How many batches the epoch has still to train; None if Keras does not know their number."""
        if not self._fit.batches:
            return None
        left = self._fit.batches - self._batch
        return left if self.going_on is None else min(left, self.going_on.total - self._trained)

    @property
    def epoch_is_over(self) -> bool:
        """True if the last execution was the last one of its epoch. False while Keras does not know the number of batches."""
        left = self.batches_left
        return left is not None and left <= 0

    @property
    def finished(self) -> bool:
        """Whether nothing was left to train when the ``fit`` began."""
        return self.going_on is not None and self.going_on.finished

    @property
    def is_over(self) -> bool:
        """Whether training ends here, although the epoch has further batches: they were trained before the job was killed."""
        return self.going_on is not None and self._trained >= self.going_on.total

    @property
    def another_epoch(self) -> bool:
        """Whether another epoch follows, which has more batches than the last execution had."""
        batches = self._fit.batches
        return batches is not None and self._last < batches and self.epoch < self._fit.epochs and not self.is_over

    def at(self, behind: int, steps: int) -> Position:
        """The position at the step that is ``behind`` steps before the end of the last execution, which had so many ``steps``. Within an
        execution no hook is called: its batches are taken to be spread evenly over its steps."""
        back = behind * self._last // max(steps, 1)
        fit = self._fit
        return Position(
            fit=self._number,
            epoch=self._epoch,
            batch=self._batch - back,
            batches=fit.batches,
            epochs=fit.epochs,
            trained=self._trained - back,
        )
