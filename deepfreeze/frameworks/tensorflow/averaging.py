"""Whether a training of several Horovod ranks averages its gradients, as far as the classes of its model and optimizer tell."""

from __future__ import annotations

from typing import Any

_KERAS = ("keras", "tf_keras")


def line_to_average(model: Any, optimizer: Any) -> str | None:
    """The line that wraps the optimizer, if it is certain that nothing averages the gradients: the optimizer and the train step are
    Keras's own. None if the optimizer averages, or if code of the user's might."""
    step = type(model).train_step
    if _package(step) not in _KERAS or "train_step" in vars(model):
        return None
    one = optimizer
    while one is not None:
        if getattr(one, "averages_gradients", False) or _package(type(one)) not in _KERAS:
            return None
        one = getattr(one, "inner_optimizer", None)
    wrapper = "deepfreeze" if hasattr(optimizer, "apply") else "horovod.tensorflow.keras"
    return f"{wrapper}.DistributedOptimizer(optimizer)"


def _package(thing: Any) -> str:
    return str(getattr(thing, "__module__", "")).split(".")[0]
