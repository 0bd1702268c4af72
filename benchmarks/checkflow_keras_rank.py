"""Profiles the step of one of the eight Keras models, for ``benchmarks.checkflow``. One rank. Imports TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import checkflow_keras, jobs
from benchmarks.checkflow_training import checkpoint, fit
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run

STEPS = 50  # the profile is complete at the 40th, with a checkpoint in every step


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """The profile of a training with a checkpoint in every step. See ``jobs.serve``."""
    model, x, y = checkflow_keras.model(params["model"], params["batch"])
    run = Path(params["folder"]) / "run"
    fit(model, x, y, STEPS, checkpoint(run, 1, profile=True))
    found = step_plans.read_profile(Run.open(run))
    assert found is not None, "the step was not profiled"
    return {"profile": dict(found.profile)}


if __name__ == "__main__":
    jobs.serve(measure)
