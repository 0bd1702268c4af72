"""The part for ``Replicas``: the ranks' weights are compared when training begins, and at checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepfreeze.engine.records import Report
from deepfreeze.freeze.settings import SaverSettings
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.training.begun import Begun
from deepfreeze.training.first_weights import FirstWeights
from deepfreeze.training.installation import Installation
from deepfreeze.training.part import Part, Saving
from deepfreeze.training.replica_checks import LastChecks


class ComparingReplicas(Part):
    """The comparisons of one training."""

    def __init__(self, begun: Begun, last: LastChecks) -> None:
        """Takes a field of the control word. ``last``: the comparisons of the last ``fit``, which this one may follow."""
        self._begun = begun
        self._checks, self._before = last.next(begun.options.replicas.parts, begun.agreement)
        self._first: FirstWeights | None = None
        self._installation: Installation | None = None

    def begins(self, installation: Installation) -> bool:
        """Compares the ranks' weights. If they differ, the first execution must not capture: a checkpoint would mix several models."""
        step, self._installation = self._begun.counted.steps.now(), installation
        self._checks.follow(self._before, self._begun.world, installation, step)
        self._first = FirstWeights(self._begun.open_run, installation.capture, self._begun.events)
        return self._first.equal

    def settings(self, settings: SaverSettings) -> SaverSettings:
        """Behind the first two comparisons of a training the ranks are compared more seldom."""
        if self._checks.comparisons.begins:
            return settings
        return replace(settings, replicas=settings.replicas.after_the_first())

    def reports(self, reports: Sequence[Report]) -> None:
        """Learns whether the ranks differ."""
        self._checks.enter(reports)

    def saves(self, saving: Saving) -> Saving:
        """Adds the bytes that are compared at this checkpoint."""
        return saving.having(compare=self._checks.next(saving.step))

    def gave_up(self, step: int) -> None:
        """What the checkpoint was to compare is compared next."""
        self._checks.give_back(step)

    def ended(self, done: Execution, schedule: Schedule) -> None:
        """Compares the weights once more, if they were different when training began."""
        if self._first is not None:
            self._first.execution_ended(schedule.step)

    def ends(self, final: bool, stopped: bool) -> None:
        """Notes where the training has ended, for the next one."""
        self._checks.end(self._installation, self._begun.counted.steps.now())

    def ends_without_steps(self) -> None:
        """As ``ends``."""
        self.ends(final=False, stopped=False)
