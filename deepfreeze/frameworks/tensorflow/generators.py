"""The global random number generators of Python, numpy, TensorFlow and Keras 3. Imports TensorFlow."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from deepfreeze.state import private_api

# The key of TensorFlow's global seed (tf.random.set_seed) among the states. The other keys are the generators' names.
_SEED = "tensorflow_seed"


class ProcessGenerators:
    """The global generators of this process. Implements ``frameworks.framework.Generators``."""

    def states(self) -> dict[str, Any]:
        """See ``Generators``. The keys: "python", "numpy", and "tensorflow", "keras" and "tensorflow_seed" if these exist."""
        kind, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
        found: dict[str, Any] = {"python": random.getstate(), "numpy": (kind, keys, place, has_gauss, gauss)}
        for name, variable in _of_frameworks().items():
            found[name] = variable.numpy()
        context = private_api.seeded_context()
        if context is not None:
            found[_SEED] = (int(context._seed), context._rng.getstate())
        return found

    def set(self, states: dict[str, Any]) -> None:
        """See ``Generators``."""
        _make_missing(states)
        random.setstate(states["python"])
        np.random.set_state(states["numpy"])
        for name, variable in _of_frameworks().items():
            if name in states:
                variable.assign(states[name])
        if _SEED in states:
            seed, state = states[_SEED]
            tf.random.set_seed(seed)
            context = private_api.seeded_context()
            if context is not None:
                context._rng.setstate(state)

    def seed(self, sequence: np.random.SeedSequence) -> None:
        """See ``Generators``."""
        words = sequence.generate_state(9)  # of 32 bits
        random.seed(int(words[0]))
        np.random.seed(words[1:2])
        for n, variable in enumerate(_of_frameworks().values()):
            own = variable.numpy()
            own.flat[:] = words[2 + 3 * n : 2 + 3 * n + own.size] >> 1  # key, or seed, and counter; they may be signed
            variable.assign(own)
        if private_api.seeded_context() is not None:
            tf.random.set_seed(int(words[8]))


def _of_frameworks() -> dict[str, Any]:
    """The variables that hold the states of TensorFlow's global generator, and of Keras 3's, if they exist."""
    found = {"tensorflow": private_api.tensorflow_generator(), "keras": private_api.keras_generator()}
    return {name: variable for name, variable in found.items() if variable is not None}


def _make_missing(names: Iterable[str]) -> None:
    """Makes those generators of ``names`` that don't exist yet. Their first state does not matter: the caller sets another one."""
    missing = set(names) - _of_frameworks().keys()
    if "tensorflow" in missing:
        tf.random.set_global_generator(tf.random.Generator.from_seed(0))
    if "keras" in missing and "keras" in sys.modules:
        # Keras makes its global generator when a function without a seed draws from it for the first time.
        sys.modules["keras"].random.uniform(())
