"""A generative adversarial network of small images, in the shape of Keras's "GAN overriding Model.train_step": two optimizers that the
first batch builds, and a callback that writes images. ``--horovod``: with the lines that Horovod asks for."""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

import deepfreeze

HOROVOD = "--horovod" in sys.argv

batch_size = 16
all_digits = np.random.default_rng(0).integers(0, 256, (640, 28, 28, 1)).astype("float32") / 255

discriminator = keras.Sequential(
    [
        keras.Input(shape=(28, 28, 1)),
        layers.Conv2D(8, (3, 3), strides=(2, 2), padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(16, (3, 3), strides=(2, 2), padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.GlobalMaxPooling2D(),
        layers.Dense(1),
    ],
    name="discriminator",
)
discriminator.summary()

latent_dim = 16
generator = keras.Sequential(
    [
        keras.Input(shape=(latent_dim,)),
        layers.Dense(7 * 7 * 8),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Reshape((7, 7, 8)),
        layers.Conv2DTranspose(8, (4, 4), strides=(2, 2), padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2DTranspose(16, (4, 4), strides=(2, 2), padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(1, (7, 7), padding="same", activation="sigmoid"),
    ],
    name="generator",
)
generator.summary()


class GAN(keras.Model):
    """A discriminator, a generator, an optimizer for each, and a ``train_step``."""

    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer, loss_fn, **options):
        super().compile(**options)
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, real_images):
        # Sample random points in the latent space, and decode them to fake images
        batch_size = ops.shape(real_images)[0]
        random_latent_vectors = keras.random.normal(shape=(batch_size, self.latent_dim), seed=self.seed_generator)
        generated_images = self.generator(random_latent_vectors)

        # Combine them with real images, and assemble labels with random noise
        combined_images = ops.concatenate([generated_images, real_images], axis=0)
        labels = ops.concatenate([ops.ones((batch_size, 1)), ops.zeros((batch_size, 1))], axis=0)
        labels += 0.05 * tf.random.uniform(tf.shape(labels))

        # Train the discriminator
        with tf.GradientTape() as tape:
            predictions = self.discriminator(combined_images)
            d_loss = self.loss_fn(labels, predictions)
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights))

        # Train the generator with labels that say "all real images"
        random_latent_vectors = keras.random.normal(shape=(batch_size, self.latent_dim), seed=self.seed_generator)
        misleading_labels = ops.zeros((batch_size, 1))
        with tf.GradientTape() as tape:
            predictions = self.discriminator(self.generator(random_latent_vectors))
            g_loss = self.loss_fn(misleading_labels, predictions)
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights))

        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


class GANMonitor(keras.callbacks.Callback):
    """Writes generated images at the end of each epoch."""

    def __init__(self, num_img=3, latent_dim=128):
        super().__init__()
        self.num_img = num_img
        self.latent_dim = latent_dim

    def on_epoch_end(self, epoch, logs=None):
        random_latent_vectors = tf.random.normal(shape=(self.num_img, self.latent_dim))
        generated_images = self.model.generator(random_latent_vectors)
        generated_images *= 255
        for i in range(self.num_img):
            img = keras.utils.array_to_img(generated_images[i])
            img.save(f"generated_img_{i}_{epoch}.png")


epochs = 16
optimizers = {
    "d_optimizer": keras.optimizers.Adam(learning_rate=0.0003),
    "g_optimizer": keras.optimizers.Adam(learning_rate=0.0003),
}
compiling, callbacks = {}, [GANMonitor(num_img=3, latent_dim=latent_dim)]
if HOROVOD:
    import horovod.tensorflow as hvd

    hvd.init()
    optimizers = {name: deepfreeze.DistributedOptimizer(optimizer) for name, optimizer in optimizers.items()}
    compiling["jit_compile"] = False
    callbacks = [deepfreeze.BroadcastState(), *(callbacks if hvd.rank() == 0 else [])]
    all_digits = all_digits[hvd.rank() :: hvd.size()]
dataset = tf.data.Dataset.from_tensor_slices(all_digits)
dataset = dataset.shuffle(buffer_size=1024).batch(batch_size).prefetch(32)

gan = GAN(discriminator=discriminator, generator=generator, latent_dim=latent_dim)
gan.compile(**optimizers, loss_fn=keras.losses.BinaryCrossentropy(from_logits=True), **compiling)
callbacks.append(deepfreeze.Checkpoint("runs/dcgan", every=15, optimizer=gan.g_optimizer))
gan.fit(dataset, epochs=epochs, callbacks=callbacks)
