"""What DeepFreeze uses of TensorFlow and the Kerases that their documentation does not promise. Imports TensorFlow.

Each function below is one row: its docstring says what it uses, since which version that is there, and what is done where it is
missing.
"""

from __future__ import annotations

import sys
from typing import Any


def seeded_context() -> Any:
    """TensorFlow's own object with the seed of ``tf.random.set_seed`` (``_seed``) and the generator behind it (``_rng``), from which
    operations without a seed get theirs; None if no seed was set. Setting the seed is public, asking for it is not.

    ``tensorflow.python.eager.context``, since TensorFlow 2.0. Where it is missing, ``rng="all"`` leaves this seed out."""
    module: Any = sys.modules.get("tensorflow.python.eager.context")
    context = module.context() if module is not None else None
    known = getattr(context, "_seed", None) is not None and hasattr(context, "_rng")
    return context if known else None


def tensorflow_generator() -> Any:
    """The variable with the state of TensorFlow's global generator; None if there is none. Its public name makes a generator, and
    making one draws numbers.

    ``tensorflow.python.ops.stateful_random_ops``, since TensorFlow 2.2. Where it is missing, ``rng="all"`` leaves it out."""
    ops: Any = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    generator = getattr(ops, "global_generator", None)
    return None if generator is None else generator.state


def keras_generator() -> Any:
    """The ``tf.Variable`` with the state of Keras 3's global seed generator; None if there is none.

    ``keras.src.backend.common.global_state``, since Keras 3.0. Where it is missing, ``rng="all"`` leaves it out."""
    state: Any = sys.modules.get("keras.src.backend.common.global_state")
    generator = state.get_global_attribute("global_seed_generator") if state is not None else None
    return None if generator is None else generator.state.value


def make_keras_generator() -> None:
    """Makes Keras 3's global seed generator, where the process has Keras 3: an unseeded draw makes it."""
    if "keras" in sys.modules:
        keras: Any = sys.modules["keras"]
        keras.random.uniform(())
