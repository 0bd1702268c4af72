"""The part for ``save_config=``: the model's configuration is kept in the run as ``configs/ATTEMPT.json``, so that a checkpoint can be
exported as a .keras file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from deepfreeze.errors import RunError, UnsupportedError
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.freeze.agreed_structure import AgreedStructure
from deepfreeze.freeze.saver import Saver
from deepfreeze.notices import Notify
from deepfreeze.state.model_config import model_config
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.training.begun import Begun
from deepfreeze.training.installation import Installation
from deepfreeze.training.part import Part, Saving


class StoredConfig(Part):
    """The configuration of one attempt. Rank 0 alone has this part.

    A configuration is a convenience for ``export``: neither a model that Keras can't describe nor a run that can't take the file ends or
    delays a training. Keras describes the model once for each installation of captures."""

    def __init__(self, begun: Begun) -> None:
        self._target, self._notify = begun.open_run.attempt.target, begun.events.notify
        self._installation: Installation | None = None
        self._config: ModelConfig | None = None  # not stored yet

    def begins(self, installation: Installation) -> bool:
        """Gets the installation, which keeps the description."""
        self._installation = installation
        return True

    def opens(self, saver: Saver, agreed: AgreedStructure) -> None:
        """Has Keras describe the model, unless the installation has a description from an earlier training."""
        found, target = self._installation, self._target
        assert found is not None
        if found.config is None:
            found.config = _described(
                lambda: model_config(found.capture.state.model, target.run_id, target.attempt), self._notify
            )
        self._config = found.config or None

    def saves(self, saving: Saving) -> Saving:
        """Writes the file before the first checkpoint."""
        config, self._config = self._config, None
        if config is not None:
            self._store(config)
        return saving

    def _store(self, config: ModelConfig) -> None:
        target = self._target
        try:
            WritableRun.open(target.run).store_config(replace(config, run_id=target.run_id, attempt=target.attempt))
        except RunError as error:
            self._notify(
                "warning", f"the model's configuration is not stored, so no .keras file can be exported: {error}"
            )


def _described(describe: Callable[[], ModelConfig], notify: Notify) -> ModelConfig | Literal[False]:
    """False if Keras can't describe the model."""
    try:
        return describe()
    except UnsupportedError as error:
        notify("info", str(error))
        return False
