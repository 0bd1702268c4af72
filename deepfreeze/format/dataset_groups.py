"""Which tensors of a checkpoint are the model's weights, and which belong to its optimizers and metrics. The path of a tensor's dataset
in the model file tells: ``layers/dense/vars/0``, ``optimizer/vars/1``, ``metrics/mean/vars/0``. A per-rank tensor is in no file, and has
a path all the same: ``seeds/0``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Container

from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import PER_RANK

# The path of an optimizer's variable ("optimizer/vars/0"), also of one inside a LossScaleOptimizer
# ("optimizer/inner_optimizer/vars/0").
_OF_OPTIMIZER = re.compile(r"([^/]+)/(?:_?(?:inner_)?optimizer/)?vars/[0-9]+\Z")
# The kinds of tensors, for people. An attachment is a tensor in version 1 of the format alone.
WEIGHT, OPTIMIZER, METRIC, SEED, ATTACHMENT = "weight", "optimizer", "metric", "seed", "attachment"

# The group of a loss scale, inside of its optimizer's. Keras 2 saves none, and its ``load_weights`` passes over this group.
LOSS_SCALE = "loss_scale"
_OF_LOSS_SCALE = re.compile(rf"[^/]+/{LOSS_SCALE}/vars/[0-9]+\Z")

# The group, in the layout ``plain-h5``, of the weights of Keras 3's lookups.
LOOKUPS = "lookups"

# A structure's named values. The first: the groups of optimizers that are no root groups, ["_opts/adam", "teacher/optimizer"], and the
# datasets of optimizers that Keras leaves out. The second:
# the datasets of the variables for which the compiled optimizer was built, in the order of its slots, where these are not the model's
# trainable variables (a distiller's are the student's).
OPTIMIZERS, TRAINED = "optimizers", "trained"

# The group of variables that Keras leaves out of its files: those that the model lists and no object saves, and those of
# ``state/untracked``. Keras's ``load_weights`` passes over this group. Random generators have paths below ``seeds``.
UNTRACKED = "deepfreeze"
_OF_UNTRACKED = re.compile(rf"(seeds/)?{UNTRACKED}/[^/]+")

# Keras 2 gives the counts of all optimizers one name: the second one's is "iteration#2".
_STEP_COUNT = re.compile(r"(^|/)iterations?(#[0-9]+)?$")


def kinds(structure: Structure) -> dict[str, str]:
    """The kind of each tensor, ``WEIGHT`` for example, by the tensor's name, in the structure's order."""
    of_optimizers = optimizer_paths(structure)

    def kind(placed: Placed) -> str:
        if placed.spec.role == PER_RANK:
            return SEED if group(placed.path) == "seeds" else ATTACHMENT
        if is_metric(placed.path):
            return METRIC
        return OPTIMIZER if placed.path in of_optimizers else WEIGHT

    return {placed.spec.name: kind(placed) for placed in structure.tensors}


def weights(structure: Structure) -> list[Placed]:
    """The model's weights, trainable or not: all tensors but those of optimizers and metrics, and the random seeds."""
    return [structure.by_name[name] for name, kind in kinds(structure).items() if kind == WEIGHT]


def optimizer_paths(structure: Structure) -> set[str]:
    """The paths of all tensors that belong to optimizers."""
    roots, inner = _optimizer_roots(structure), tuple(f"{path}/" for path in _texts(structure, OPTIMIZERS) or ())
    return {one.path for one in structure.tensors if group(one.path) in roots or f"{one.path}/".startswith(inner)}


def trained(structure: Structure) -> list[str] | None:
    """The paths of the variables for which the compiled optimizer was built, in the order of its slots; None for the model's trainable
    variables, and where it is not known."""
    return _texts(structure, TRAINED)


def _texts(structure: Structure, name: str) -> list[str] | None:
    """The named value ``name``; None unless it is a list of texts."""
    value = structure.values.get(name)
    return value if isinstance(value, list) and all(isinstance(one, str) for one in value) else None


def _optimizer_roots(structure: Structure) -> set[str]:
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


def is_loss_scale(path: str) -> bool:
    """Whether the dataset at ``path`` is one that DeepFreeze has added for the loss scale of a Keras 2 optimizer."""
    return _OF_LOSS_SCALE.match(path) is not None


def is_lookup(path: str) -> bool:
    """Whether the dataset at ``path`` is one of the layout ``plain-h5`` that holds the weights of a lookup."""
    return group(path) == LOOKUPS


def is_untracked(path: str) -> bool:
    """Whether ``path`` is of a variable that Keras leaves out of its files, and DeepFreeze has added."""
    return _OF_UNTRACKED.fullmatch(path) is not None


def untracked_path(name: str, taken: Container[str], per_rank: bool = False) -> str:
    """The path of such a variable: ``deepfreeze/counter``, ``seeds/deepfreeze/StateVar`` for a ``per_rank`` one. A name is one component
    of a path, with ``.`` in the place of ``/``: otherwise a dataset could be in the way of another one's group, and
    ``deepfreeze/vars/0`` would be taken for an optimizer's. ``taken``: paths that are used already."""
    flat = name.replace("/", ".").strip(".") or "variable"
    path = first = f"seeds/{UNTRACKED}/{flat}" if per_rank else f"{UNTRACKED}/{flat}"
    numbers = itertools.count(2)
    while path in taken:
        path = f"{first}#{next(numbers)}"
    return path


def group(path: str) -> str:
    """The root group of the dataset at ``path``: ``layers`` for ``layers/dense/vars/0``."""
    return path.split("/")[0]
