"""Which tensors of a checkpoint are the model's weights, and which belong to its optimizers and metrics: by their datasets."""

from __future__ import annotations

import re

from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import PER_RANK

# An optimizer's own variable, or, where a loss scale is around it, that of the one inside.
_OF_OPTIMIZER = re.compile(r"([^/]+)/(?:_?(?:inner_)?optimizer/)?vars/[0-9]+\Z")
_STEP_COUNT = re.compile(r"(^|/)iterations?$")


def weights(structure: Structure) -> list[Placed]:
    """The model's weights, trainable or not: all tensors but those of optimizers and metrics, and the random seeds."""
    of_optimizers = optimizer_groups(structure)
    return [
        placed
        for placed in structure.tensors
        if placed.spec.role != PER_RANK and not is_metric(placed.path) and group(placed.path) not in of_optimizers
    ]


def optimizer_groups(structure: Structure) -> set[str]:
    """The groups of the file that optimizers have: ``optimizer``, and what else holds a count of steps as its own variable, as
    a GAN's second optimizer does."""
    found = {"optimizer"}
    for placed in structure.tensors:
        match, spec = _OF_OPTIMIZER.match(placed.path), placed.spec
        if match and spec.shape == () and spec.dtype == "int64" and _STEP_COUNT.search(spec.name):
            found.add(match[1])
    return found


def is_metric(path: str) -> bool:
    """Whether a dataset holds a metric's state rather than the model's or optimizer's."""
    return group(path) == "metrics"


def group(path: str) -> str:
    """The group at the root of the file that a dataset is in."""
    return path.split("/")[0]
