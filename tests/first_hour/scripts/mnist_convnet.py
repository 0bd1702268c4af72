"""A small convolutional network for small images, in the shape of Keras's "Simple MNIST convnet". ``--horovod``: with the lines that
Horovod asks for."""

import sys

import keras
import numpy as np
from keras import layers

import deepfreeze

HOROVOD = "--horovod" in sys.argv

num_classes = 10
input_shape = (28, 28, 1)

random = np.random.default_rng(0)
x_train, y_train = random.integers(0, 256, (2400, 28, 28)), random.integers(0, num_classes, 2400)
x_test, y_test = random.integers(0, 256, (200, 28, 28)), random.integers(0, num_classes, 200)

# Scale images to the [0, 1] range
x_train = x_train.astype("float32") / 255
x_test = x_test.astype("float32") / 255
# Make sure images have shape (28, 28, 1)
x_train = np.expand_dims(x_train, -1)
x_test = np.expand_dims(x_test, -1)
print("x_train shape:", x_train.shape)
print(x_train.shape[0], "train samples")
print(x_test.shape[0], "test samples")

# convert class vectors to binary class matrices
y_train = keras.utils.to_categorical(y_train, num_classes)
y_test = keras.utils.to_categorical(y_test, num_classes)

model = keras.Sequential(
    [
        keras.Input(shape=input_shape),
        layers.Conv2D(4, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Conv2D(8, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.summary()

batch_size = 40
epochs = 15
callbacks = [deepfreeze.Checkpoint("runs/convnet", every=20)]

if not HOROVOD:
    model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
else:
    import horovod.tensorflow as hvd

    hvd.init()
    optimizer = deepfreeze.DistributedOptimizer(keras.optimizers.Adam())
    model.compile(loss="categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"], jit_compile=False)
    callbacks.insert(0, deepfreeze.BroadcastState())
    x_train, y_train = x_train[hvd.rank() :: hvd.size()], y_train[hvd.rank() :: hvd.size()]

model.fit(x_train, y_train, batch_size=batch_size, epochs=epochs, validation_split=0.1, callbacks=callbacks)

score = model.evaluate(x_test, y_test, verbose=0)
print("Test loss:", score[0])
print("Test accuracy:", score[1])
