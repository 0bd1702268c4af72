"""Which bytes the ranks compare at each checkpoint, agreed on by all ranks: of one ``fit``, and of those that go on where it has ended."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from deepfreeze.engine.records import DIVERGED, OK, SUPERSEDED, Report
from deepfreeze.events.stats import Newest, NewestByStep
from deepfreeze.format.levels import Level
from deepfreeze.plan.comparisons import Compared, Comparisons
from deepfreeze.ranks.agreement import Agreement
from deepfreeze.ranks.world import World


class ReplicaChecks:
    """One rank's part in the comparisons of one ``fit``. The training thread calls all methods, between two executions. ``comparisons``:
    those of this ``fit`` and of the ones before that it follows."""

    def __init__(self, parts: int, agreement: Agreement) -> None:
        """Takes a field of the control word, because rank 0 alone knows of a difference, and all ranks must compare the same bytes.
        ``parts``: as ``Replicas.parts``."""
        self.comparisons = Comparisons(parts)
        self._differ = agreement.field("differ")
        self._asked = self._compared = 0  # checkpoints of this ``fit``; those of them that are committed
        self._known, self._newest = False, -1  # what the comparison at the newest step has found
        self._given_up: Newest[int] = Newest()
        self._parts: NewestByStep[Compared | None] = NewestByStep()
        self._end: tuple[weakref.ref, int] | None = None

    def follow(self, before: ReplicaChecks | None, world: World, captures: object, step: int) -> None:
        """Collective. To be called before the first checkpoint. Goes on with the comparisons of the ``fit`` ``before``, if it has ended, on
        all ranks, at this ``step`` and with the same ``captures``: so the same model, with the same optimizer, goes on from the values that
        were compared. A ``fit`` with a checkpoint that was not compared to the end, or with a known difference, is not followed."""
        rows = world.gather((before is not None and before.ended(captures, step), before is not None and before.alike))
        if before is not None and all(ended for ended, _ in rows) and rows[0][1]:
            self.comparisons = before.comparisons

    def next(self, step: int) -> Compared | None:
        """The part that the ranks compare at the checkpoint of ``step``, the next one; None: nothing. Each rank calls this once for a
        checkpoint, after the same execution."""
        self._asked += 1
        self._parts[step] = self.comparisons.next(bool(self._differ.agreed))
        return self._parts[step]

    def give_back(self, step: int) -> None:
        """All ranks have given the checkpoint of ``step`` up after the same execution: what it was to compare is compared next."""
        self.comparisons.give_back(self._parts.get(step))

    def enter(self, reports: Sequence[Report]) -> None:
        """Takes in the engine's new reports: the comparison at the newest step tells whether a difference is known."""
        for report in reports:
            if report.code == SUPERSEDED and report.step not in self._given_up:
                self._asked -= 1  # the ranks were not compared at this step
                self._given_up.append(report.step)
            committed = report.code == OK and report.level == Level.EXTERNAL and report.step >= 0
            # Checkpoints may be committed in any order; what a newer one has found holds.
            if (report.code == DIVERGED or committed) and report.step >= self._newest:
                self._newest = report.step
                self._known = report.diverged >= 0
                self._differ.propose(int(self._known))
            self._compared += committed

    def end(self, captures: object, step: int) -> None:
        """To be called when the ``fit`` has come to its end at ``step``, and every checkpoint of it is committed or failed."""
        self._end = weakref.ref(captures), step

    def ended(self, captures: object, step: int) -> bool:
        """Whether ``end`` was called with these."""
        return self._end is not None and self._end[0]() is captures and self._end[1] == step

    @property
    def alike(self) -> bool:
        """Whether every checkpoint was committed, and none since the last comparison is known to differ. Rank 0 knows it."""
        return self._compared >= self._asked and not self._known


class LastChecks:
    """The comparisons of the last ``fit`` of a callback, for its next one. The training thread calls all methods."""

    def __init__(self) -> None:
        self._last: ReplicaChecks | None = None

    def next(self, parts: int, agreement: Agreement) -> tuple[ReplicaChecks, ReplicaChecks | None]:
        """The comparisons of the ``fit`` that begins, and those of the last one, None if there was none. The arguments are those of
        ``ReplicaChecks``."""
        before, self._last = self._last, ReplicaChecks(parts, agreement)
        return self._last, before

    def forget(self) -> None:
        """The next ``fit`` follows none."""
        self._last = None
