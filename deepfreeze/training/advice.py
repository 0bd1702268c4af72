"""Warnings, before the first step, of a job whose ranks do not train together although they were probably meant to."""

from __future__ import annotations

import os
from typing import Any

from deepfreeze.frameworks import table
from deepfreeze.launch import launched_as_several
from deepfreeze.notices import Notify
from deepfreeze.process_state import PROCESS
from deepfreeze.ranks.world import World


def warn_of_one_rank(world: World, given: Any, notify: Notify) -> None:
    """Warns if a launcher says that it has started several processes, but this process is a job of one rank. ``given``: the option
    ``world``."""
    launched = launched_as_several(os.environ) if given is None and world.size == 1 else None
    if launched is not None:
        name, number = launched
        _tell_once(
            f"{name} says that {number} processes were started, but this one trains alone. Begin the program with "
            "horovod.tensorflow.init(), so that they train one model. If each process is meant to train a model of its own, pass "
            'world="alone"',
            notify,
        )


def warn_of_no_average(world: World, model: Any, optimizer: Any, notify: Notify) -> None:
    """Rank 0 warns if Horovod has several ranks, but nothing averages their gradients."""
    asks = world.size > 1 and world.in_graph and world.rank == 0
    line = table.of(model).line_to_average(model, optimizer) if asks else None
    if line is not None:
        _tell_once(
            f"Horovod has {world.size} ranks, but {type(optimizer).__name__} does not average their gradients: each rank trains another "
            f"model, and their checkpoints will be refused. Pass {line} to model.compile",
            notify,
        )


def _tell_once(message: str, notify: Notify) -> None:
    if message not in PROCESS.warned:
        PROCESS.warned.add(message)
        notify("warning", message)
