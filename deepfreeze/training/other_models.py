"""Models that go on from what another model of the same process has been trained to, in one run: in a cross-validation with one path for
all folds, each fold would begin with weights that have seen its validation data."""

from __future__ import annotations

import weakref
from typing import Any

from deepfreeze import wording

# By the id of a run: the model whose training has ended there last.
_trained: dict[str, weakref.ref[Any]] = {}
_told: set[str] = set()


def ended(run_id: str, model: Any) -> None:
    """The training of ``model`` has come to its own end in a run."""
    _trained[run_id] = weakref.ref(model)


def taken_up(run: str, run_id: str, step: int, model: Any) -> str | None:
    """A warning for the user if ``model`` was restored from ``step`` of a run in which this process has trained another model to its end;
    None if it has not, or if the user knows of this run. ``run``: its path."""
    if run_id not in _trained or _trained[run_id]() is model or run_id in _told:
        return None
    _told.add(run_id)
    near = wording.near(run)
    return (
        f"this model goes on from step {step} of {near}, to which this process has trained another model. If the models are to be trained "
        f'apart, as the folds of a cross-validation are, give each a run of its own, Checkpoint(f"{near}-{{fold}}"), or let this one begin '
        'anew there with resume="off", which moves the checkpoints of the other one away'
    )
