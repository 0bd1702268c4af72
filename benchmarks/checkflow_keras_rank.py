"""Profiles the step of one of the eight Keras models, for ``benchmarks.checkflow``. One rank. Imports TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

import deepfreeze
from benchmarks import checkflow_keras, jobs
from deepfreeze.store import step_plans
from deepfreeze.store.run import Run

STEPS = 50  # the profile is complete at the 40th, with a checkpoint in every step


def measure(params: dict[str, Any]) -> dict[str, Any]:
    """The profile of a training with a checkpoint in every step. See ``jobs.serve``."""
    model, x, y = checkflow_keras.model(params["model"], params["batch"])
    run = Path(params["folder"]) / "run"
    batches = tf.data.Dataset.from_tensors((x, y)).repeat(STEPS)
    capture, engine = deepfreeze.Capture(profile=True), deepfreeze.Engine(io="direct")
    options: dict[str, Any] = {"local": None, "final": False, "resume": "off", "verbose": 0}
    checkpoint = deepfreeze.Checkpoint(run, 1, capture=capture, engine=engine, **options)
    model.fit(batches, verbose=0, shuffle=False, callbacks=[checkpoint])
    found = step_plans.read_profile(Run.open(run))
    assert found is not None, "the step was not profiled"
    return {"profile": dict(found.profile)}


if __name__ == "__main__":
    jobs.serve(measure)
