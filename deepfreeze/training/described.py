"""What a training says of its checkpoints in their manifests."""

from __future__ import annotations

from typing import Any

from deepfreeze.format.manifest_values import POSITION
from deepfreeze.training.fit_position import FitPosition


class Described:
    """The named values of the manifests of one ``fit`` or loop, as they are at each checkpoint. The training thread calls all methods."""

    def __init__(self, position: FitPosition | None) -> None:
        """``position``: of the ``fit``, None for a loop."""
        self._position = position

    def values(self, behind: int, steps: int) -> dict[str, Any]:
        """The values by name, for the checkpoint of the step that is ``behind`` steps before the end of the last execution, which had so
        many ``steps``."""
        found: dict[str, Any] = {}
        if self._position is not None:
            found[POSITION] = self._position.at(behind, steps).to_json()
        return found
