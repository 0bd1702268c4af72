"""The part for what each checkpoint's manifest has: the position in the ``fit``, metrics, the user's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepfreeze.freeze.described import Described
from deepfreeze.training.part import Part, Saving


class DescribingCheckpoints(Part):
    """The named values of one training's manifests."""

    def __init__(self, described: Described) -> None:
        self._described = described

    def saves(self, saving: Saving) -> Saving:
        """Adds the values of this moment."""
        return saving.having(values=self._described.values(saving.behind, saving.steps))

    def measured(self, values: Mapping[str, Any], step: int, epoch: int | None) -> None:
        """Takes in the metrics of an epoch, for the checkpoints that come."""
        if epoch is not None:
            self._described.epoch_ended(epoch, step, values)

    def values_at_release(self) -> Mapping[str, Any]:
        """The metrics of the epoch that has ended."""
        return self._described.logs
