"""Profiles the step of one of the eight Keras models, for ``benchmarks.checkflow``. One rank. Imports TensorFlow."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

from benchmarks import checkflow_keras, jobs
from benchmarks.checkflow_training import checkpoint, fit
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run
from deepfreeze.training.parts import profiling

STEPS = 44  # the profile is complete at the 40th, with a checkpoint in every step
# A step of the largest batch takes a minute and more, and its time changes little from one step to the next.
LARGE_STEPS, LARGE_WARM, LARGE_PROFILED = 6, 1, 1
MEMORY, COPIES = 0.75, 3  # of the machine's memory, for the training and so many copies of its state


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """The profile of a training with a checkpoint in every step, the size of its batch, and the bytes of memory that it took. ``batch`` is
    None for the largest one. See ``jobs.serve``."""
    model, size, steps = checkflow_keras.model(params["model"]), params["batch"], STEPS
    if size is None:
        size, steps = _largest(model), LARGE_STEPS
        profiling.WARM, profiling.STEPS = LARGE_WARM, LARGE_PROFILED
    jobs.progress(f"profile, batch {size} ...")
    run = Path(params["folder"]) / "run"
    fit(model, *checkflow_keras.batch(model, size), steps, checkpoint(run, 1, profile=True))
    found = step_plans.read_profile(Run.open(run))
    assert found is not None, "the step was not profiled"
    return {"profile": dict(found.profile), "batch": size, "memory": _used()}


def _largest(model: Any) -> int:
    """The largest power of two that memory has room for, as a batch. A doubling adds twice the bytes that the doubling before it added."""
    state = sum(weight.numpy().nbytes for weight in model.weights)
    limit = MEMORY * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") - COPIES * state
    size, before = 1, 0
    while True:
        fit(model, *checkflow_keras.batch(model, size), 1)
        now = _used()
        jobs.progress(f"batch {size}: {now / 1e9:.1f} GB ...")
        # The first step also loads libraries and allocates the state, whatever the batch.
        if size > 1 and now + 2 * (now - before) > limit:
            return size
        size, before = 2 * size, now


def _used() -> int:
    """The most bytes that this process has had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    jobs.serve(measure)
