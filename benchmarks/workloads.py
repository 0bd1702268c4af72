"""The models that are measured: NT3 and ResNet-50 at their published sizes, NT3's tensors under next to no computation, and a model that
is nearly all first layer.

``tensors`` and ``arrays`` import neither TensorFlow nor Keras; ``model`` does.
"""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import numpy as np

from benchmarks.report import ROOT

NAMES = ("nt3", "resnet50", "light", "first", "first-clipped")
GENES, CLASSES = 60483, 2
EXAMPLE = ROOT / "examples" / "candle_nt3"
_TUMOURS_RATE = 1e-3  # of SGD: as published
_RESNET_CLASSES, _RESNET_SIDE, _RESNET_BATCH = 1000, 64, 8
# Of ResNet-50: filters, blocks of each stage.
_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
# Of "first": the features of the input and of each layer's output; 480 of the 512 MB are the first layer's.
_FIRST, _FIRST_BATCH = (30000, 4000, 2000, 10), 8


def tensors(name: str) -> list[tuple[str, tuple[int, ...], str]]:
    """(name, shape, numpy dtype) of each weight, in the order of ``model(name).weights``."""
    shapes = {"resnet50": _resnet50, "first": _first, "first-clipped": _first}.get(_known(name), _nt3)()
    return [(path, shape, "float32") for path, shape in shapes]


def nbytes(name: str) -> int:
    """Bytes of all weights."""
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for _, shape, dtype in tensors(name))


def arrays(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Random values for ``tensors(name)``."""
    rng = np.random.default_rng(seed)
    return {path: rng.random(shape, np.dtype(dtype)) for path, shape, dtype in tensors(name)}


def model(name: str, distributed: bool = False, batch: int = _RESNET_BATCH) -> tuple[Any, Any, Any]:
    """(compiled Keras model, x, y): one batch, whose values don't matter to the cost.

    "nt3": batch 1 of the published 60483 genes. "resnet50": ``batch`` pictures of 64 x 64 pixels, 1000 classes. "light": NT3's weights,
    each of them written by every step, which costs little else. "first": dense layers, the first of which has nearly all weights and is
    updated last, as embeddings are; "first-clipped": with ``global_clipnorm``, so all updates come last. ``distributed``: gradients
    averaged by Horovod, which must be initialised; "light" then costs more, for its gradients are as large as its weights.
    """
    import keras

    _known(name)
    rng = np.random.default_rng(0)
    loss = "sparse_categorical_crossentropy"
    if name == "nt3":
        sys.path.insert(0, str(EXAMPLE))
        from model import nt3  # type: ignore[import-not-found]

        network, optimizer = nt3(GENES, CLASSES), keras.optimizers.SGD(1e-3)
        x, y = rng.random((1, GENES, 1), np.float32), np.zeros(1, np.int64)
    elif name == "resnet50":
        side = (_RESNET_SIDE, _RESNET_SIDE, 3)
        network = keras.applications.ResNet50(weights=None, classes=_RESNET_CLASSES, input_shape=side)
        optimizer = keras.optimizers.SGD(1e-2, momentum=0.9)
        x, y = rng.random((batch, *side), np.float32), rng.integers(0, _RESNET_CLASSES, batch)
    elif name.startswith("first"):
        from benchmarks import light

        layers = [keras.layers.Dense(units, "relu") for units in _FIRST[1:]]
        network = keras.Sequential([keras.Input(_FIRST[:1]), *layers], name="first")
        optimizer, loss = light.optimizer(global_clipnorm=1.0 if name == "first-clipped" else None), "mse"
        x, y = rng.random((_FIRST_BATCH, _FIRST[0]), np.float32), np.zeros((_FIRST_BATCH, _FIRST[-1]), np.float32)
    else:
        from benchmarks import light

        network, optimizer, loss = light.network(tensors("nt3")), light.optimizer(), "mse"
        x, y = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)
    if distributed:
        import deepfreeze

        optimizer = deepfreeze.DistributedOptimizer(optimizer)
    network.compile(optimizer, loss, jit_compile=False)
    return network, x, y


def tumours(genes: int = GENES) -> tuple[Any, tuple[np.ndarray, np.ndarray]]:
    """(compiled Keras model, (x, y)): NT3 as the example trains it on Khan's 63 tumours, whose 2308 genes are filled up with zeros to
    ``genes``. Plain SGD, so a checkpoint of 60483 genes has as many bytes as one of "nt3"."""
    import keras

    sys.path.insert(0, str(EXAMPLE))
    import data  # type: ignore[import-not-found]
    from model import nt3

    keras.utils.set_random_seed(1)
    x, y, _, _ = data.load(genes)
    network = nt3(genes, data.CLASSES)
    optimizer = keras.optimizers.SGD(_TUMOURS_RATE)
    network.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    return network, (x, y)


def _known(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"unknown workload {name!r}: one of {', '.join(NAMES)}")
    return name


def _nt3() -> list[tuple[str, tuple[int, ...]]]:
    """Two convolutions over all genes, three dense layers."""
    width = ((GENES - 20 + 1) - 10 + 1) // 10 * 128
    kernels = [
        ("conv1d", (20, 1, 128)),
        ("conv1d_1", (10, 128, 128)),
        ("dense", (width, 200)),
        ("dense_1", (200, 20)),
        ("dense_2", (20, CLASSES)),
    ]
    return [item for layer, shape in kernels for item in _with_bias(layer, shape)]


def _first() -> list[tuple[str, tuple[int, ...]]]:
    """Dense layers."""
    kernels = [(f"dense_{i}" if i else "dense", kernel) for i, kernel in enumerate(itertools.pairwise(_FIRST))]
    return [item for layer, kernel in kernels for item in _with_bias(layer, kernel)]


def _resnet50() -> list[tuple[str, tuple[int, ...]]]:
    """As ``keras.applications.ResNet50`` builds it: convolutions with bias, each before a BatchNormalization."""

    def conv(layer: str, side: int, before: int, filters: int) -> list[tuple[str, tuple[int, ...]]]:
        return _with_bias(f"{layer}_conv", (side, side, before, filters))

    def norm(layer: str, filters: int) -> list[tuple[str, tuple[int, ...]]]:
        return [(f"{layer}_bn/{part}", (filters,)) for part in ("gamma", "beta", "moving_mean", "moving_variance")]

    found = [*conv("conv1", 7, 3, 64), *norm("conv1", 64)]
    before = 64
    for stage, (filters, blocks) in enumerate(_STAGES, 2):
        for block in range(1, blocks + 1):
            name = f"conv{stage}_block{block}"
            found += [*conv(f"{name}_1", 1, before, filters), *norm(f"{name}_1", filters)]
            found += [*conv(f"{name}_2", 3, filters, filters), *norm(f"{name}_2", filters)]
            # The shortcut's layers come where Keras sorts them by depth: side by side with the last of the block's own.
            if block == 1:
                found += [*conv(f"{name}_0", 1, before, 4 * filters), *conv(f"{name}_3", 1, filters, 4 * filters)]
                found += [*norm(f"{name}_0", 4 * filters), *norm(f"{name}_3", 4 * filters)]
            else:
                found += [*conv(f"{name}_3", 1, filters, 4 * filters), *norm(f"{name}_3", 4 * filters)]
            before = 4 * filters
    return [*found, *_with_bias("predictions", (before, _RESNET_CLASSES))]


def _with_bias(layer: str, kernel: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return [(f"{layer}/kernel", kernel), (f"{layer}/bias", kernel[-1:])]
