"""The classes of Keras that override ``load_own_variables``, and small models that have an object of each. Imports no framework."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

METHOD = "load_own_variables"
WORDS = ["ape", "bee", "cat", "dog"]


def classes(package: str) -> set[str]:
    """The names of all classes of an installed Keras that have a ``load_own_variables`` of their own, read from its sources."""
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.origin is not None
    found = set()
    for path in Path(spec.origin).parent.rglob("*.py"):
        text = path.read_text()
        if f"def {METHOD}" not in text or path.stem.endswith("_test"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and METHOD in {getattr(one, "name", None) for one in node.body}:
                found.add(node.name)
    return found


class Recipe:
    """A model with one of these objects, and its data. ``make(keras, first)``: the model; ``first``: as in the program that trains first,
    which adapts the layer; else with other values, and of a layer that is adapted none; ``x``: a batch for the model."""

    def __init__(self, make: Callable[[Any, bool], Any], x: Any) -> None:
        self.make, self.x = make, x

    def compiled(self, keras: Any, first: bool) -> Any:
        """The model, compiled."""
        keras.utils.set_random_seed(1 if first else 2)
        model = self.make(keras, first)
        model.compile(keras.optimizers.Adam(1e-2), "mse", jit_compile=False)
        return model

    def predict(self, model: Any) -> np.ndarray:
        """The outputs of a model for ``x``."""
        outputs: np.ndarray = model.predict(self.data(1).map(lambda x, y: x), verbose=0)
        return outputs

    def data(self, steps: int = 2) -> Any:
        """A dataset of so many batches."""
        import tensorflow as tf

        y = np.arange(len(next(iter(self.x.values())) if isinstance(self.x, dict) else self.x), dtype="float32")[
            :, None
        ]
        return tf.data.Dataset.from_tensors((self.x, y)).repeat(steps)


NUMBERS = np.random.default_rng(0).normal(50, 7, (6, 3)).astype("float32")
CODES = np.random.default_rng(1).integers(0, 4, (6, 3))
TEXTS = np.array([["ape bee bee"], ["dog"], ["cat cat ape"], ["emu"], ["bee dog"], ["ape"]])


def _stacked(keras: Any, layer: Any, dtype: str = "float32", shape: tuple = (3,), *between: Any) -> Any:
    inputs = keras.Input(shape, dtype=dtype)
    outputs = layer(inputs)
    for one in between:
        outputs = one(outputs)
    return keras.Model(inputs, keras.layers.Dense(1)(outputs))


def normalization(keras: Any, first: bool, axis: Any = -1) -> Any:
    """Adapted in the program that trains first alone."""
    layer = keras.layers.Normalization(axis=axis)
    model = _stacked(keras, layer)
    if first:
        layer.adapt(NUMBERS)
    return model


def _weights_of_words(first: bool) -> list[float]:
    return [0.5, 1.5, 2.5, 3.5] if first else [1.0, 1.0, 1.0, 1.0]


def _discretization(keras: Any, first: bool) -> Any:
    return _stacked(keras, keras.layers.Discretization([45.0, 50.0, 55.0], output_mode="multi_hot"))


def _string_lookup(keras: Any, first: bool) -> Any:
    weights = {"idf_weights": _weights_of_words(first)}
    return _stacked(keras, keras.layers.StringLookup(vocabulary=WORDS, output_mode="tf_idf", **weights), "string", (1,))


def _integer_lookup(keras: Any, first: bool) -> Any:
    weights = {"idf_weights": _weights_of_words(first)}
    layer = keras.layers.IntegerLookup(vocabulary=[0, 1, 2, 3], output_mode="tf_idf", **weights)
    return _stacked(keras, layer, "int64")


def _plain_lookup(keras: Any, first: bool) -> Any:
    return _stacked(keras, keras.layers.StringLookup(vocabulary=WORDS, output_mode="multi_hot"), "string", (1,))


def _text_vectorization(keras: Any, first: bool) -> Any:
    weights = {"idf_weights": _weights_of_words(first)}
    layer = keras.layers.TextVectorization(vocabulary=WORDS, output_mode="tf_idf", **weights)
    return _stacked(keras, layer, "string", (1,))


def _feature_space(keras: Any, first: bool) -> Any:
    import tensorflow as tf

    space = keras.utils.FeatureSpace({"size": "float_normalized", "word": "string_categorical"}, output_mode="concat")
    sizes = NUMBERS[:, :1] if first else NUMBERS[:, :1] * 3
    space.adapt(tf.data.Dataset.from_tensor_slices({"size": sizes, "word": TEXTS[:, 0]}).batch(2))
    model = keras.Model(space.get_inputs(), keras.layers.Dense(1)(space.get_encoded_features()))
    if hasattr(keras, "ops"):
        model.space = space  # Keras 2 tracks no FeatureSpace: only its layers are the model's
    return model


def _dense(keras: Any, first: bool) -> Any:
    return _stacked(keras, keras.layers.Dense(4))


def _einsum_dense(keras: Any, first: bool) -> Any:
    return _stacked(keras, keras.layers.EinsumDense("ab,bc->ac", output_shape=4))


def _embedding(keras: Any, first: bool) -> Any:
    return _stacked(keras, keras.layers.Embedding(4, 2), "int64", (3,), keras.layers.Flatten())


def _convolution(keras: Any, first: bool) -> Any:
    reshape = keras.layers.Reshape((3, 1))
    inputs = keras.Input((3,))
    outputs = keras.layers.Flatten()(keras.layers.Conv1D(2, 2)(reshape(inputs)))
    return keras.Model(inputs, keras.layers.Dense(1)(outputs))


def _quantised(keras: Any, first: bool) -> Any:
    layer = keras.layers.Dense(4)
    model = _stacked(keras, layer)
    layer.quantize("int8")
    return model


def caching(keras: Any, first: bool) -> Any:
    """A layer of a user's own that computes with what it has derived from its weights when they were loaded, and not with its weights."""

    class Cached(keras.layers.Layer):
        """Multiplies its input by a weight, of which it holds a copy as a constant."""

        def build(self, shape: Any) -> None:
            """One weight for each number."""
            start = keras.initializers.Constant(3.0 if first else 1.0)
            self.scale = self.add_weight(name="scale", shape=(shape[-1],), initializer=start, trainable=False)
            self.copy = np.full(shape[-1], 3.0 if first else 1.0, "float32")

        def load_own_variables(self, store: Any) -> None:
            """Keeps the copy up to date."""
            assert len(store) == len(store.keys()) == 1 and "0" in store and isinstance(store["0"][()], np.ndarray)
            super().load_own_variables(store)
            self.copy = np.asarray(store["0"])

        def call(self, inputs: Any) -> Any:
            """See the class."""
            return inputs * self.copy

    return _stacked(keras, Cached())


def both(keras: Any, first: bool) -> Any:
    """A layer of Keras, and the user's own behind it."""
    model = caching(keras, first)
    layer = keras.layers.Normalization()
    inputs = keras.Input((3,))
    outputs = layer(inputs)
    if first:
        layer.adapt(NUMBERS)
    return keras.Model(inputs, model(outputs))


RECIPES = {
    "Normalization": Recipe(normalization, NUMBERS),
    "Normalization in front of a user's own": Recipe(both, NUMBERS),
    "Normalization of all axes": Recipe(lambda keras, first: normalization(keras, first, None), NUMBERS),
    "Discretization": Recipe(_discretization, NUMBERS),
    "IndexLookup of words": Recipe(_string_lookup, TEXTS),
    "IndexLookup of integers": Recipe(_integer_lookup, CODES),
    "IndexLookup without weights": Recipe(_plain_lookup, TEXTS),
    "TextVectorization": Recipe(_text_vectorization, TEXTS),
    "FeatureSpace": Recipe(_feature_space, {"size": NUMBERS[:, :1], "word": TEXTS}),
    "Dense": Recipe(_dense, NUMBERS),
    "EinsumDense": Recipe(_einsum_dense, NUMBERS),
    "Embedding": Recipe(_embedding, CODES),
    "BaseConv": Recipe(_convolution, NUMBERS),
    "a user's own": Recipe(caching, NUMBERS),
}
OF_KERAS_3 = {"Dense, quantised": Recipe(_quantised, NUMBERS)}
# Classes whose method does more than to assign, or other things.
DERIVING = {"Normalization", "Discretization", "IndexLookup", "TextVectorization", "FeatureSpace"}
# Base classes, which the models above have beside the layer; and the class of Keras on PyTorch.
IN_ALL = {"Layer", "BaseOptimizer", "_BaseOptimizer"}
NOT_TENSORFLOW = {"TorchModuleWrapper"}


def recipes(package: str) -> dict[str, Recipe]:
    """The recipes for this Keras."""
    return RECIPES | OF_KERAS_3 if package == "keras" else RECIPES
