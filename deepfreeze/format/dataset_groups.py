"""Which tensors of a checkpoint are the model's weights, and which belong to its optimizers and metrics. The path of a tensor's dataset
in the model file tells: ``layers/dense/vars/0``, ``optimizer/vars/1``, ``metrics/mean/vars/0``."""

from __future__ import annotations

import re

from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import PER_RANK

# The path of an optimizer's variable ("optimizer/vars/0"), also of one inside a LossScaleOptimizer
# ("optimizer/inner_optimizer/vars/0").
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
    """The root groups of the file that belong to optimizers: ``optimizer``, and every other root group that has a count of steps
    (an int64 scalar named ``iterations``) among its own variables. A GAN's second optimizer has one."""
    found = {"optimizer"}
    for placed in structure.tensors:
        match, spec = _OF_OPTIMIZER.match(placed.path), placed.spec
        if match and spec.shape == () and spec.dtype == "int64" and _STEP_COUNT.search(spec.name):
            found.add(match[1])
    return found


def is_metric(path: str) -> bool:
    """Whether the dataset at ``path`` holds a metric's state."""
    return group(path) == "metrics"


def group(path: str) -> str:
    """The root group of the dataset at ``path``: ``layers`` for ``layers/dense/vars/0``."""
    return path.split("/")[0]
