"""The named values that a training stores in its checkpoints' manifests: position, logs, metadata, the kind of its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepfreeze.format.manifest_values import INPUT, LOGS, METADATA, POSITION, logs_of
from deepfreeze.plan.fit_position import FitPosition


class Described:
    """The named values of the manifests of one ``Checkpoint`` or loop, as they are at each checkpoint. The training thread calls all
    methods."""

    def __init__(self, metadata: Mapping[str, Any] | None, data: Any = None) -> None:
        """``metadata``, ``data``: the options of these names."""
        self._always: dict[str, Any] = {METADATA: metadata} if metadata else {}
        if data is not None:
            self._always[INPUT] = type(data).__name__
        self._logs: dict[str, Any] = {}
        self._position: FitPosition | None = None

    def begin(self, position: FitPosition | None) -> None:
        """A ``fit`` begins, with its ``position``; None: a loop."""
        self._position = position

    def epoch_ended(self, epoch: int, step: int, logs: Mapping[str, Any]) -> None:
        """Takes in the ``logs`` of an epoch, which is counted from 1, and whose last step is ``step``."""
        self._logs = {LOGS: logs_of(epoch, step, logs)}

    @property
    def logs(self) -> dict[str, Any]:
        """The value ``logs`` by its name; ``{}`` before the first epoch has ended."""
        return self._logs

    def values(self, behind: int, steps: int) -> dict[str, Any]:
        """The values by name, for the checkpoint of the step that is ``behind`` steps before the end of the last execution, which had so
        many ``steps``."""
        position = {} if self._position is None else {POSITION: self._position.at(behind, steps).to_json()}
        return {**self._always, **self._logs, **position}
