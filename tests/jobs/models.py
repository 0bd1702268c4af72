"""Small models of four kinds, on Keras 3 and tf_keras, that train the same way in every process."""

from __future__ import annotations

import os

import numpy as np

BATCH = 4
KINDS = ("dense", "conv", "lstm", "attention")


def use_few_threads():
    """One thread in each op, and two ops at a time. TensorFlow takes other numbers only before it runs its first op."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)


def framework(api: str):
    """Imports Keras 3 (``"keras"``) or tf_keras, with one thread per pool and deterministic ops."""
    if api == "tf_keras":
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf

    use_few_threads()
    tf.config.experimental.enable_op_determinism()
    if api == "tf_keras":
        import tf_keras as keras
    else:
        import keras
    return keras


def is_keras_2(keras) -> bool:
    """Whether this package is a Keras 2: tf_keras, or what TensorFlow 2.15 brings as keras."""
    return not hasattr(keras, "ops")


def averaging(keras, optimizer):
    """The optimizer, made to average its gradients over all ranks: by Horovod's own class, or ours for Keras 3."""
    if is_keras_2(keras):
        import horovod.tensorflow.keras as hvd

        return hvd.DistributedOptimizer(optimizer)
    from deepfreeze import DistributedOptimizer

    return DistributedOptimizer(optimizer)


def accumulating(keras, batches):
    """An Adam that averages its gradients over all ranks, and updates after so many batches. For Keras 2 Horovod's own class sums them."""
    if is_keras_2(keras):
        import horovod.tensorflow.keras as hvd

        return hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3), backward_passes_per_step=batches)
    return averaging(keras, keras.optimizers.Adam(1e-3, gradient_accumulation_steps=batches))


def build(keras, kind: str, steps_per_execution: int = 1, optimizer=None, seed: int = 1):
    """A compiled model, large enough for some tensors to be cut and some not."""
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    inputs = keras.Input((16, 8))
    if kind == "dense":
        x = layers.Flatten()(inputs)
        x = layers.Dropout(0.2)(layers.Dense(300, activation="relu")(x))
        x = layers.Dense(300, activation="relu")(x)
    elif kind == "conv":
        x = layers.Conv1D(64, 3)(inputs)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
        x = layers.Dense(200)(layers.Flatten()(layers.BatchNormalization()(layers.Conv1D(96, 3)(x))))
    elif kind == "branches":
        # Both offsets have the same gradient, which TensorFlow computes, and Horovod averages, only once.
        x = layers.BatchNormalization()(layers.Conv1D(16, 3)(inputs)) + layers.BatchNormalization()(
            layers.Conv1D(16, 3)(inputs)
        )
        x = layers.Flatten()(layers.Activation("relu")(x))
    elif kind == "lstm":
        x = layers.LSTM(80)(layers.LSTM(96, return_sequences=True)(inputs))
    else:
        x = layers.Dense(96)(inputs)
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 48, dropout=0.1)(x, x))
        x = layers.GlobalAveragePooling1D()(x)
    model = keras.Model(inputs, layers.Dense(3)(x))
    optimizer = optimizer or keras.optimizers.Adam(1e-3)
    model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=steps_per_execution, jit_compile=False)
    return model


def batches(steps: int, start: int = 0, rank: int = 0):
    """``steps`` batches as a tf.data.Dataset; batch i of a rank is the same in every process."""
    import tensorflow as tf

    def one(i: int):
        rng = np.random.default_rng((i, rank))
        return rng.random((BATCH, 16, 8), np.float32), rng.random((BATCH, 3), np.float32)

    drawn = [one(i) for i in range(start, start + steps)]
    x, y = (np.concatenate(part) for part in zip(*drawn, strict=True))
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)


def seeds(model) -> list[np.ndarray]:
    """The states of the model's random layers (Keras 3)."""
    return [np.asarray(v) for v in model.variables if getattr(v, "path", "").endswith("seed_generator_state")]
