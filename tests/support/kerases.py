"""The packages of Keras that are installed here: Keras 3 (``keras``) and Keras 2 (``tf_keras``), or only the Keras 2 that TensorFlow
2.15 brings as ``keras``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib import metadata
from typing import Any

import pytest

KERAS_IS_2 = metadata.version("keras").startswith("2.")
NAMES = ("keras",) if KERAS_IS_2 else ("keras", "tf_keras")
needs_keras_3 = pytest.mark.skipif(KERAS_IS_2, reason="of Keras 3 alone, and the Keras here is TensorFlow 2.15's")


def is_2(keras: Any) -> bool:
    """Whether this package is a Keras 2."""
    return not hasattr(keras, "ops")


def cases(
    values: Iterable[Any], both: Collection[Any] = (), name: str = "name", often: Collection[Any] | None = None
) -> Any:
    """Parametrizes a test with the fixture ``keras`` and the argument ``name``: every value on every Keras in `make test-all`.
    `make test` tries fewer: the values in ``often`` (all if not given) on the first Keras, and the values in ``both`` on all of them.
    ``both`` are those for which DeepFreeze has code of its own for each Keras, or the Kerases differ."""
    values = list(values)
    often = set(values if often is None else often) | set(both)
    assert often <= set(values), often - set(values)
    sets = [
        pytest.param(keras, value, marks=[] if value in (often if keras == NAMES[0] else both) else pytest.mark.full)
        for keras in NAMES
        for value in values
    ]
    return pytest.mark.parametrize(("keras", name), sets, indirect=["keras"])


def _first(fixture: str) -> Any:
    names = [NAMES[0], *(pytest.param(name, marks=pytest.mark.full) for name in NAMES[1:])]
    return pytest.mark.parametrize(fixture, names, indirect=True)


# For tests of code that does not know which Keras it is: on the second one in `make test-all`.
one_will_do = _first("keras")
one_api_will_do = _first("api")
