"""Keras versions of the eight models of Checkflow's experiment, with plain SGD, for ``benchmarks.checkflow``. Keras is imported inside.

They have the layers, and so the weights, of ``benchmarks/published/checkflow_models.csv``; a test compares their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_CLASSES, _SIDE = 1000, 224
# RoBERTa-base: words, positions, width, heads, layers; and the tokens that the experiment has.
_WORDS, _POSITIONS, _WIDTH, _HEADS, _BLOCKS, _TOKENS = 50265, 514, 768, 12, 12, 4
# Of the Transformer: width, hidden units, tokens of source and target.
_NARROW, _HIDDEN, _SOURCE, _TARGET = 512, 2048, 10, 20
# MNASNet 0.5: width, size of the kernel, stride, expansion, repeats of each stack.
_STACKS = ((16, 3, 2, 3, 3), (24, 5, 2, 3, 3), (40, 5, 2, 6, 3), (48, 3, 1, 6, 2), (96, 5, 2, 6, 4), (160, 3, 1, 6, 1))
_VGG = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)  # filters; 0: pooling


def model(name: str) -> Any:
    """The compiled model. ``name``: as in the table."""
    import keras

    keras.utils.set_random_seed(0)
    network = NETWORKS[name](keras)
    network.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=False)
    return network


def batch(network: Any, size: int) -> tuple[Any, np.ndarray]:
    """(x, y): a batch of so many samples, whose values don't matter to the cost."""
    rng = np.random.default_rng(0)

    def values(tensor: Any) -> np.ndarray:
        shape = (size, *tensor.shape[1:])
        # Words have the range of positions, so that both embeddings have a row for each.
        return rng.integers(0, _POSITIONS, shape) if "int" in tensor.dtype else rng.random(shape, np.float32)

    xs = [values(tensor) for tensor in network.inputs]
    y = np.zeros((size, *network.outputs[0].shape[1:]), np.float32)
    return xs[0] if len(xs) == 1 else tuple(xs), y


def _alexnet(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential([
        keras.Input((_SIDE, _SIDE, 3)),
        layers.ZeroPadding2D(2), layers.Conv2D(64, 11, 4, activation="relu"), layers.MaxPooling2D(3, 2),
        layers.Conv2D(192, 5, padding="same", activation="relu"), layers.MaxPooling2D(3, 2),
        layers.Conv2D(384, 3, padding="same", activation="relu"),
        layers.Conv2D(256, 3, padding="same", activation="relu"),
        layers.Conv2D(256, 3, padding="same", activation="relu"), layers.MaxPooling2D(3, 2),
        layers.Flatten(), layers.Dropout(0.5), layers.Dense(4096, "relu"),
        layers.Dropout(0.5), layers.Dense(4096, "relu"), layers.Dense(_CLASSES),
    ])  # fmt: skip


def _vgg11(keras: Any) -> Any:
    layers = keras.layers
    made = [layers.Conv2D(n, 3, padding="same", activation="relu") if n else layers.MaxPooling2D(2) for n in _VGG]
    dense = [layers.Dense(4096, "relu"), layers.Dropout(0.5), layers.Dense(4096, "relu"), layers.Dropout(0.5)]
    return keras.Sequential([keras.Input((_SIDE, _SIDE, 3)), *made, layers.Flatten(), *dense, layers.Dense(_CLASSES)])


def _mnasnet(keras: Any) -> Any:
    layers = keras.layers

    def conv(x: Any, filters: int, relu: bool = True, **options: Any) -> Any:
        x = layers.Conv2D(filters, options.pop("kernel", 1), padding="same", use_bias=False, **options)(x)
        x = layers.BatchNormalization()(x)
        return layers.ReLU()(x) if relu else x

    def depthwise(x: Any, kernel: int, stride: int) -> Any:
        x = layers.DepthwiseConv2D(kernel, stride, padding="same", use_bias=False)(x)
        return layers.ReLU()(layers.BatchNormalization()(x))

    inputs = keras.Input((_SIDE, _SIDE, 3))
    x = conv(depthwise(conv(inputs, 16, kernel=3, strides=2), 3, 1), 8, relu=False)
    for width, kernel, stride, expansion, repeats in _STACKS:
        for number in range(repeats):
            y = conv(x, expansion * x.shape[-1])
            y = conv(depthwise(y, kernel, stride if number == 0 else 1), width, relu=False)
            x = layers.Add()([x, y]) if number else y
    x = layers.GlobalAveragePooling2D()(conv(x, 1280))
    return keras.Model(inputs, layers.Dense(_CLASSES)(layers.Dropout(0.2)(x)))


def _residual(keras: Any, inputs: Any, stem: Any, conv: Callable[..., Any], pool: Any, classes: int) -> Any:
    """ResNet18, or R3D-18: the stem, and four stages of two blocks. ``conv(filters, kernel, stride)``: a layer; ``pool``: the last one but
    the head."""
    layers = keras.layers
    x = stem
    for stage, filters in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = layers.ReLU()(layers.BatchNormalization()(conv(filters, 3, stride)(x)))
            y = layers.BatchNormalization()(conv(filters, 3, 1)(y))
            if stride > 1:
                x = layers.BatchNormalization()(conv(filters, 1, stride)(x))
            x = layers.ReLU()(layers.Add()([x, y]))
    return keras.Model(inputs, layers.Dense(classes)(pool(x)))


def _resnet18(keras: Any) -> Any:
    layers = keras.layers

    def conv(filters: int, kernel: int, stride: int) -> Any:
        return layers.Conv2D(filters, kernel, stride, padding="same", use_bias=False)

    inputs = keras.Input((_SIDE, _SIDE, 3))
    stem = layers.MaxPooling2D(3, 2, padding="same")(layers.ReLU()(layers.BatchNormalization()(conv(64, 7, 2)(inputs))))
    return _residual(keras, inputs, stem, conv, layers.GlobalAveragePooling2D(), _CLASSES)


def _r3d_18(keras: Any) -> Any:
    layers = keras.layers

    def conv(filters: int, kernel: Any, stride: Any) -> Any:
        return layers.Conv3D(filters, kernel, stride, padding="same", use_bias=False)

    inputs = keras.Input((1, 112, 112, 3))  # one frame
    stem = layers.ReLU()(layers.BatchNormalization()(conv(64, (3, 7, 7), (1, 2, 2))(inputs)))
    return _residual(keras, inputs, stem, conv, layers.GlobalAveragePooling3D(), 400)


def _attention(keras: Any, x: Any, context: Any, heads: int) -> Any:
    width = x.shape[-1]
    return keras.layers.MultiHeadAttention(heads, width // heads)(x, context)


def _feed(keras: Any, x: Any, hidden: int, activation: str) -> Any:
    return keras.layers.Dense(x.shape[-1])(keras.layers.Dense(hidden, activation)(x))


def _bert(keras: Any) -> Any:
    layers = keras.layers
    inputs = [keras.Input((_TOKENS,), dtype="int32"), keras.Input((_TOKENS,), dtype="int32")]
    tables = (layers.Embedding(_WORDS, _WIDTH), layers.Embedding(_POSITIONS, _WIDTH))
    x = layers.Add()([table(tokens) for table, tokens in zip(tables, inputs, strict=True)])
    x = layers.Dropout(0.1)(layers.LayerNormalization()(x))
    for _ in range(_BLOCKS):
        x = layers.LayerNormalization()(x + _attention(keras, x, x, _HEADS))
        x = layers.LayerNormalization()(x + _feed(keras, x, 4 * _WIDTH, "gelu"))
    return keras.Model(inputs, x)


def _transformer(keras: Any) -> Any:
    layers = keras.layers
    inputs = [keras.Input((_SOURCE, _NARROW)), keras.Input((_TARGET, _NARROW))]
    x, y = inputs
    x = layers.LayerNormalization()(x + _attention(keras, x, x, 1))
    x = layers.LayerNormalization()(layers.LayerNormalization()(x + _feed(keras, x, _HIDDEN, "relu")))
    y = layers.LayerNormalization()(y + _attention(keras, y, y, 1))
    y = layers.LayerNormalization()(y + _attention(keras, y, x, 1))
    y = layers.LayerNormalization()(layers.LayerNormalization()(y + _feed(keras, y, _HIDDEN, "relu")))
    return keras.Model(inputs, y)


def _vit(keras: Any) -> Any:
    layers = keras.layers

    class Tokens(layers.Layer):
        """Puts the token of the class before the patches, and adds positions."""

        def build(self, shape: Any) -> None:
            """Makes both weights."""
            self.token = self.add_weight(shape=(1, 1, shape[-1]), name="class_token")
            self.positions = self.add_weight(shape=(1, shape[1] + 1, shape[-1]), name="positions")

        def call(self, x: Any) -> Any:
            """The sequence."""
            token = keras.ops.repeat(self.token, keras.ops.shape(x)[0], axis=0)
            return keras.ops.concatenate([token, x], axis=1) + self.positions

    inputs = keras.Input((_SIDE, _SIDE, 3))
    x = layers.Conv2D(_WIDTH, 16, 16)(inputs)
    x = Tokens()(layers.Reshape((-1, _WIDTH))(x))
    for _ in range(_BLOCKS):
        y = layers.LayerNormalization()(x)
        x = x + _attention(keras, y, y, _HEADS)
        x = x + _feed(keras, layers.LayerNormalization()(x), 4 * _WIDTH, "gelu")
    return keras.Model(inputs, layers.Dense(_CLASSES)(layers.LayerNormalization()(x)[:, 0]))


NETWORKS: dict[str, Callable[[Any], Any]] = {
    "alexnet": _alexnet,
    "bert_roberta_base": _bert,
    "mnasnet0_5": _mnasnet,
    "resnet18": _resnet18,
    "r3d_18": _r3d_18,
    "transformer_1_1": _transformer,
    "vgg11": _vgg11,
    "vit_b_16": _vit,
}
