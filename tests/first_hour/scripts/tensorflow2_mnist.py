"""A convolutional network for small images under Horovod with a training loop of its own, in the shape of Horovod's example for
TensorFlow 2. In place of its ``tf.train.Checkpoint`` there is ``deepfreeze.capture``."""

import horovod.tensorflow as hvd
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
            tf.keras.Input((28, 28, 1)),
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
    loss = tf.losses.SparseCategoricalCrossentropy()

    # The learning rate grows with the number of ranks.
    opt = tf.optimizers.Adam(0.001 * hvd.size())

    @tf.function
    def training_step(images, labels, first_batch):
        with tf.GradientTape() as tape:
            probs = mnist_model(images, training=True)
            loss_value = loss(labels, probs)

        # The tape averages the gradients.
        tape = hvd.DistributedGradientTape(tape)

        grads = tape.gradient(loss_value, mnist_model.trainable_variables)
        opt.apply_gradients(zip(grads, mnist_model.trainable_variables))

        # After the first step, when the optimizer has its variables, all ranks take rank 0's.
        if first_batch:
            hvd.broadcast_variables(mnist_model.variables, root_rank=0)
            hvd.broadcast_variables(opt.variables(), root_rank=0)

        return loss_value

    # Each rank makes its share of the steps.
    total = 768 // hvd.size()
    with deepfreeze.capture(opt, mnist_model, "runs/mnist", every=20) as checkpoint:
        batches = dataset.take(total - checkpoint.start)
        for batch, (images, labels) in enumerate(batches, start=checkpoint.start):
            loss_value = training_step(images, labels, batch == 0)

            if batch % 10 == 0 and hvd.local_rank() == 0:
                print(f"Step #{batch}\tLoss: {loss_value:.6f}")
            if not checkpoint.step():
                break

    if hvd.rank() == 0:
        mnist_model.save_weights("mnist.weights.h5")
    return mnist_model


if __name__ == "__main__":
    train()
