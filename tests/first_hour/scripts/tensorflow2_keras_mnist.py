"""A convolutional network for small images under Horovod, in the shape of Horovod's example for Keras, with all of its callbacks."""

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

import deepfreeze


def train():
    hvd.init()

    random = np.random.default_rng(hvd.rank())
    images, labels = random.integers(0, 256, (2000, 28, 28)), random.integers(0, 10, 2000)
    dataset = tf.data.Dataset.from_tensor_slices(
        (tf.cast(images[..., tf.newaxis] / 255.0, tf.float32), tf.cast(labels, tf.int64))
    )
    dataset = dataset.repeat().shuffle(1000).batch(16)

    mnist_model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(4, [3, 3], activation="relu"),
            tf.keras.layers.Conv2D(8, [3, 3], activation="relu"),
            tf.keras.layers.MaxPooling2D(pool_size=(2, 2)),
            tf.keras.layers.Dropout(0.25),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(16, activation="relu"),
            tf.keras.layers.Dropout(0.5),
            tf.keras.layers.Dense(10, activation="softmax"),
        ]
    )

    # More ranks see more images in a step.
    scaled_lr = 0.001 * hvd.size()
    opt = tf.optimizers.Adam(scaled_lr)

    opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)

    mnist_model.compile(
        loss=tf.losses.SparseCategoricalCrossentropy(),
        optimizer=opt,
        metrics=["accuracy"],
        experimental_run_tf_function=False,
    )

    callbacks = [
        # All ranks begin with the same weights.
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        # Before callbacks that go by metrics.
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=3, verbose=1),
        deepfreeze.Checkpoint("runs/keras_mnist", every=20),
    ]

    if hvd.rank() == 0:
        callbacks.append(tf.keras.callbacks.ModelCheckpoint("./checkpoint-{epoch}.h5"))

    verbose = 1 if hvd.rank() == 0 else 0

    # Each rank trains on its share of the batches.
    mnist_model.fit(dataset, steps_per_epoch=64 // hvd.size(), callbacks=callbacks, epochs=12, verbose=verbose)
    return mnist_model


if __name__ == "__main__":
    train()
