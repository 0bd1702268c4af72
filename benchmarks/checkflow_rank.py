"""One rank of a training whose step is profiled, for ``benchmarks.checkflow``. Imports TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd

import deepfreeze
from benchmarks import jobs, workloads
from benchmarks.capture_memory import sampled
from benchmarks.checkflow_training import checkpoint, fit
from benchmarks.step_clock import StepClock
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run

BEFORE, BEHIND = 10, 45  # steps before the marks, and from the third marked checkpoint on


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """The profile, on rank 0, and what today's captures take: seconds of a step without checkpoints and with them, the most bytes that the
    captures held, and how many of the steps were committed. See ``jobs.serve``."""
    model, x, y = workloads.model(params["workload"], distributed=True)
    run, every = Path(params["folder"]) / "run", params["every"]
    steps = BEFORE + 3 * every + BEHIND
    plain, clock = StepClock(), StepClock()
    fit(model, x, y, steps // 2, plain, deepfreeze.BroadcastState())
    profiled = checkpoint(run, every, profile=True)
    fit(model, x, y, steps, clock, deepfreeze.BroadcastState(), profiled)
    # The sampling takes time of its own, so it has a training of its own.
    again = checkpoint(run.with_name("sampled"), every)
    with sampled() as held:
        fit(model, x, y, max(10, 2 * every), deepfreeze.BroadcastState(), again)
    found = step_plans.read_profile(Run.open(run)) if hvd.rank() == 0 else None
    return {
        "profile": None if found is None else dict(found.profile),
        "plain": plain.seconds[BEFORE:],
        "seconds": clock.seconds[BEFORE:],
        "held": held.most,
        "committed": len(profiled.stats.committed),
        "taken": len(profiled.stats.steps),
        "nbytes": profiled.stats.nbytes,
    }


if __name__ == "__main__":
    jobs.serve(measure)
