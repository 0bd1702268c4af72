"""A training of ``benchmarks.checkflow`` in a rank's process, and its checkpoints. Imports TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

import deepfreeze


def fit(model: Any, x: Any, y: Any, steps: int, *callbacks: Any) -> None:
    """Trains so many steps, all on one batch."""
    batches = tf.data.Dataset.from_tensors((x, y)).repeat(steps)
    model.fit(batches, verbose=0, shuffle=False, callbacks=list(callbacks))


def checkpoint(run: Path, every: int, profile: bool = False) -> deepfreeze.Checkpoint:
    """A callback that writes past the page cache, without a local tier. ``profile``: it profiles the step."""
    engine, capture = deepfreeze.Engine(io="direct"), deepfreeze.Capture(profile=profile)
    options: dict[str, Any] = {"local": None, "final": False, "resume": "off", "verbose": 0}
    return deepfreeze.Checkpoint(run, every, engine=engine, capture=capture, **options)
