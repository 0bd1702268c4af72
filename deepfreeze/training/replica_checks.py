"""Which bytes the ranks compare at each checkpoint of one training, agreed on by all ranks."""

from __future__ import annotations

from collections.abc import Sequence

from deepfreeze.format.levels import Level
from deepfreeze.plan.comparisons import Comparisons, Part
from deepfreeze.ranks.agreement import Agreement
from veloc_bindings import DIVERGED, OK, Report


class ReplicaChecks:
    """One rank's part in the comparison. The training thread calls all methods, between two executions."""

    def __init__(self, parts: int, agreement: Agreement) -> None:
        """Takes a field of the control word, because rank 0 alone knows of a difference, and all ranks must compare the same bytes.
        ``parts``: as ``Replicas.parts``."""
        self._comparisons = Comparisons(parts)
        self._differ = agreement.field("differ")

    def next(self) -> Part | None:
        """What is compared at the next checkpoint. To be called once for each, on every rank after the same execution."""
        return self._comparisons.next(bool(self._differ.agreed))

    def enter(self, reports: Sequence[Report]) -> None:
        """Takes in the engine's new reports, in the order of their steps: the last comparison tells whether a difference is known."""
        for report in reports:
            if report.code == DIVERGED or (report.code == OK and report.level == Level.EXTERNAL):
                self._differ.propose(int(report.diverged >= 0))
