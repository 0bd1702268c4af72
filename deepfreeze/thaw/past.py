"""The weights of an earlier checkpoint of a run, for a model that goes on from a later one. ``EarlyStopping(restore_best_weights=True)``
wants those of its best epoch."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from deepfreeze.events.messages import to_logger
from deepfreeze.frameworks.table import variables_for
from deepfreeze.store.marks import Marks
from deepfreeze.store.run import Run
from deepfreeze.thaw.read import TensorReader
from deepfreeze.thaw.restore import variables_of


def kept(run: str | os.PathLike[str], step: int, rule: Any) -> int | None:
    """The checkpoint whose weights are to be taken for those of ``step``: this one, or else the newest that the retention ``rule``
    keeps. None if the run has neither. RunError if the run can't be read."""
    opened = Run.open(run)
    if opened.has_step(step):
        return step
    return max(rule.wants(Marks.read(opened, to_logger).history({})), default=None)


def weights(model: Any, run: str | os.PathLike[str], step: int) -> list[np.ndarray]:
    """The weights of ``model`` at ``step``, in the order of ``model.get_weights()``, with their shapes and dtypes. Changes no model.
    CorruptError, NotFoundError; StructureError if the checkpoint is of another model."""
    with TensorReader(Run.open(run), step) as reader:
        names = {placed.path: placed.spec.name for placed in reader.structure.tensors}
        found = variables_of(reader, model)
        saved = {id(variable): names[path] for path, variable in found.items() if path in names}
        variables = variables_for(model)
        variables.settle(model)
        # An older checkpoint lacks weights that Keras leaves out of its files: they stay as they are.
        return [
            reader[saved[id(variable)]] if id(variable) in saved else np.array(variables.value(variable))
            for variable in model.weights
        ]
