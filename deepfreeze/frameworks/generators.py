"""The random number generators of a job, which are those of the framework that its model is made of. Imports no framework."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepfreeze.frameworks import table
from deepfreeze.frameworks.framework import Generators


class ModelGenerators:
    """The generators of the framework of one model, and of another model's later. Implements ``framework.Generators``. ``take_from``
    comes before the other methods."""

    def __init__(self) -> None:
        self._generators: Generators | None = None

    def take_from(self, model: Any, where: str) -> None:
        """Takes the generators of the model's framework. Called before a run is opened for ``model``. ``UnsupportedError`` as of
        ``table.of``."""
        self._generators = table.of(model, where).generators()

    def states(self) -> dict[str, Any]:
        """See ``Generators``."""
        return self._of_model.states()

    def set(self, states: dict[str, Any]) -> None:
        """See ``Generators``."""
        self._of_model.set(states)

    def seed(self, sequence: np.random.SeedSequence) -> None:
        """See ``Generators``."""
        self._of_model.seed(sequence)

    @property
    def _of_model(self) -> Generators:
        assert self._generators is not None
        return self._generators
