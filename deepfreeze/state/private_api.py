"""What DeepFreeze uses of TensorFlow, Horovod and the Kerases that their documentation does not promise: all of it, in one table.

Each row is a function below, which says what it does where the thing is missing. Nothing else touches a private name of theirs. Imports
none of them: what the process has not loaded does not exist.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PrivateName:
    """``name``, of ``package`` from version ``since`` on; ``function``: of this module, the only one that uses it; ``missing``: what
    the user has then."""

    name: str
    package: str
    since: str
    function: str
    missing: str


TABLE = (
    PrivateName(
        "Layer._random_generator._generator", "Keras 2", "2.10", "layer_generator", "no seed of that layer is saved"
    ),
    PrivateName("Optimizer._built", "Keras 2", "2.11", "says_built", "the optimizer counts as not built"),
    PrivateName("Optimizer._iterations", "Keras 3", "3.1", "batch_counter", "gradient accumulation is refused"),
    PrivateName("Model._steps_per_execution", "Keras 2", "2.4", "steps_per_execution", "one step per execution"),
    PrivateName("Optimizer._agg_helper", "Horovod", "0.21", "horovods_accumulator", "every batch is an update"),
    PrivateName("Module._flatten", "TensorFlow", "2.0", "flattened", "a tf.Module is refused"),
    PrivateName(
        "eager.context.context()._seed, _rng", "TensorFlow", "2.0", "seeded_context", 'rng="all" leaves it out'
    ),
    PrivateName(
        "stateful_random_ops.global_generator", "TensorFlow", "2.2", "tensorflow_generator", 'rng="all" leaves it out'
    ),
    PrivateName(
        "keras.src.backend.common.global_state", "Keras 3", "3.0", "keras_generator", 'rng="all" leaves it out'
    ),
)


def layer_generator(layer: Any) -> Any:
    """The TensorFlow generator of a Keras 2 random layer, whose ``state`` is a variable; None if it has none (Keras 2 has one only
    where ``enable_tf_random_generator()`` was called)."""
    return getattr(getattr(layer, "_random_generator", None), "_generator", None)


def says_built(optimizer: Any) -> bool:
    """Whether a Keras 2 optimizer says that it has its variables; its public attribute is Keras 3's."""
    return bool(getattr(optimizer, "_built", False))


def batch_counter(optimizer: Any) -> Any:
    """The variable in which a Keras 3 optimizer with ``gradient_accumulation_steps`` counts batches; its public ``iterations`` is a
    quotient then. None if there is none."""
    return getattr(optimizer, "_iterations", None)


def steps_per_execution(model: Any) -> int:
    """The number of steps that ``compile`` was told to run in an execution; Keras 2 keeps it in a private variable. 1 if unknown."""
    steps: Any = getattr(model, "steps_per_execution", None) or getattr(model, "_steps_per_execution", None)
    return int(steps.numpy() if hasattr(steps, "numpy") else steps or 1)


def horovods_accumulator(optimizer: Any) -> Any:
    """The object in which Horovod's optimizer sums gradients over ``backward_passes_per_step`` batches; None if it does not."""
    return getattr(optimizer, "_agg_helper", None)


def flattened(module: Any) -> Any:
    """The method of a ``tf.Module`` that gives its variables with the names of the attributes that lead to them; None if it has
    none. Public ``variables`` has no names."""
    return getattr(module, "_flatten", None)


def seeded_context() -> Any:
    """TensorFlow's own object with the seed of ``tf.random.set_seed`` (``_seed``) and the generator behind it (``_rng``), from which
    operations without a seed get theirs; None if no seed was set. Setting the seed is public, asking for it is not."""
    module: Any = sys.modules.get("tensorflow.python.eager.context")
    context = module.context() if module is not None else None
    known = getattr(context, "_seed", None) is not None and hasattr(context, "_rng")
    return context if known else None


def tensorflow_generator() -> Any:
    """The variable with the state of TensorFlow's global generator; None if there is none. Its public name makes a generator, and
    making one draws numbers."""
    ops: Any = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    generator = getattr(ops, "global_generator", None)
    return None if generator is None else generator.state


def keras_generator() -> Any:
    """The ``tf.Variable`` with the state of Keras 3's global seed generator; None if there is none. Any public name makes one."""
    state: Any = sys.modules.get("keras.src.backend.common.global_state")
    generator = state.get_global_attribute("global_seed_generator") if state is not None else None
    return None if generator is None else generator.state.value
