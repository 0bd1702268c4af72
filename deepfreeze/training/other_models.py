"""Models that go on from what another model of the same process has been trained to, in one run: in a cross-validation with one path for
all folds, each fold would begin with weights that have seen its validation data."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from deepfreeze import wording
from deepfreeze.process_state import PROCESS
from deepfreeze.training.start import Start


def ended(run_id: str, model: Any) -> None:
    """The training of ``model`` has come to its own end in a run."""
    PROCESS.trained_models[run_id] = weakref.ref(model)


def warn(attempt: Start, model: Any, tell: Callable[[str], None]) -> None:
    """Tells rank 0's user that the ``attempt`` has restored ``model`` in a run in which this process has trained another model to its end:
    once for each run."""
    run_id = attempt.target.run_id
    before = PROCESS.trained_models.get(run_id)
    if attempt.resumed is None or before is None or before() is model or run_id in PROCESS.warned:
        return
    PROCESS.warned.add(run_id)
    near = wording.near(attempt.target.run)
    if attempt.world.rank == 0:
        tell(
            f"this model goes on from step {attempt.step} of {near}, to which this process has trained another model. If the models are to "
            f'be trained apart, as the folds of a cross-validation are, give each a run of its own, Checkpoint(f"{near}-{{fold}}"), or let '
            'this one begin anew there with resume="off", which moves the checkpoints of the other one away'
        )
