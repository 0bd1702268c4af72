"""A model's training state as tests compare it."""

from __future__ import annotations

from typing import Any

from deepfreeze.state.dataset_paths import LocatedTensor, locate
from deepfreeze.state.training_state import TrainingState


def tensors(model: Any, what: str = "full") -> list[LocatedTensor]:
    """The tensors that a checkpoint of the model would have: those in the file sorted by path, then the seeds."""
    return list(locate(TrainingState.of(model, what)).tensors)
