"""The model's configuration, which rank 0 stores in the run before an attempt's first checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from deepfreeze.errors import RunError, UnsupportedError
from deepfreeze.format.model_config import ModelConfig
from deepfreeze.notices import Notify
from deepfreeze.state.model_config import model_config
from deepfreeze.store.target import Target
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.training.installation import Installation


class StoredConfig:
    """The configuration of one attempt. The training thread of rank 0 calls all methods.

    A configuration is a convenience for ``export``: neither a model that Keras can't describe nor a run that can't take the file ends or
    delays a training. Keras describes the model once for each installation of captures."""

    def __init__(self, installation: Installation, target: Target, notify: Notify) -> None:
        """Has Keras describe the model, unless ``installation`` has a description from an earlier training. ``notify``: is told why there
        is none."""
        self._target, self._notify = target, notify
        if installation.config is None:
            installation.config = _described(
                lambda: model_config(installation.capture.state.model, target.run_id, target.attempt), notify
            )
        self._config = installation.config or None

    def store(self) -> None:
        """To be called before each checkpoint. The first call writes ``configs/ATTEMPT.json``."""
        config, self._config = self._config, None
        if config is None:
            return
        try:
            WritableRun.open(self._target.run).store_config(
                replace(config, run_id=self._target.run_id, attempt=self._target.attempt)
            )
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
