"""The part for ``keep=``: which committed checkpoints stay, and which are removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepfreeze.engine.records import Report
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.saver import Saver
from deepfreeze.retention.keeper import Keeper
from deepfreeze.training.begun import Begun
from deepfreeze.training.part import Part

# How many seconds the end of a training waits for retention to judge its last commits. The store may hang.
_SECONDS = 5.0


class Retention(Part):
    """Tells rank 0's ``Keeper`` of the training, and of its metrics. ``Keeper`` itself hears of the commits, as a listener."""

    def __init__(self, begun: Begun, keeper: Keeper) -> None:
        self._keeper, self._events, self._open_run = keeper, begun.events, begun.open_run
        self._first = begun.world.rank == 0
        # Metrics that came before ``opens``: (values, step, epoch). None from then on.
        self._early: list[tuple[Mapping[str, Any], int, int | None]] | None = []

    def opens(self, saver: Saver, agreed: AgreedStructure) -> None:
        """From now on checkpoints may be removed, until the run is closed."""
        attempt, closing = self._open_run.attempt, self._open_run.closing
        closing.callback(self._keeper.close, _SECONDS)  # then nobody calls the engine any more
        if self._first:
            self._keeper.open(attempt.target, attempt.step, saver.engine.remove, saver.engine.supersede)
        early, self._early = self._early or [], None
        for values, step, epoch in early:
            self.measured(values, step, epoch)

    def reports(self, reports: Sequence[Report]) -> None:
        """Warns of what ``Keeper`` has met with."""
        for message in self._keeper.notices():
            self._events.warn(message)

    def measured(self, values: Mapping[str, Any], step: int, epoch: int | None) -> None:
        """Gives the metrics to the rule. Those that come before ``opens`` wait for it."""
        if self._early is not None:
            self._early.append((dict(values), step, epoch))
            return
        self._events.flush()  # retention hears of the captures before
        warning = self._keeper.measured(step, values, epoch)
        if warning is not None:
            self._events.warn(warning)

    def drains(self) -> bool:
        """Has the last commits judged. Returns whether checkpoints are being removed."""
        return self._keeper.finish(_SECONDS)

    def ends(self, final: bool, stopped: bool) -> None:
        """Warns of metrics that the rule wants and has never got."""
        if not stopped:
            self._keeper.require_metrics()

    def ends_without_steps(self) -> None:
        """Warns on rank 0 of metrics that are lost, because training has made no step since."""
        if self._early and self._first:
            steps = ", ".join(map(str, sorted({step for _, step, _ in self._early})))
            run = self._open_run.attempt.target.run
            self._events.warn(
                f"{run}: the metrics of step {steps} are not kept, because training has made no step since"
            )
