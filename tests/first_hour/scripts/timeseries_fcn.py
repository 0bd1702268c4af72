"""A fully convolutional network that classifies time series, in the shape of Keras's "Timeseries classification from scratch", with its
three callbacks. ``--horovod``: with the lines that Horovod asks for."""

import sys

import keras
import numpy as np

import deepfreeze

HOROVOD = "--horovod" in sys.argv

random = np.random.default_rng(0)


def load_data(rows, length=48):
    y = random.integers(0, 2, rows) * 2 - 1
    x = random.normal(size=(rows, length)) + y[:, None] * np.sin(np.arange(length))
    return x, y


x_train, y_train = load_data(1280)
x_test, y_test = load_data(160)
x_train = x_train.reshape((x_train.shape[0], x_train.shape[1], 1))
x_test = x_test.reshape((x_test.shape[0], x_test.shape[1], 1))
num_classes = len(np.unique(y_train))

idx = random.permutation(len(x_train))
x_train = x_train[idx]
y_train = y_train[idx]

y_train[y_train == -1] = 0
y_test[y_test == -1] = 0


def make_model(input_shape):
    input_layer = keras.layers.Input(input_shape)
    x = input_layer
    for _ in range(3):
        x = keras.layers.Conv1D(filters=8, kernel_size=3, padding="same")(x)
        x = keras.layers.BatchNormalization()(x)
        x = keras.layers.ReLU()(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    output_layer = keras.layers.Dense(num_classes, activation="softmax")(x)
    return keras.models.Model(inputs=input_layer, outputs=output_layer)


model = make_model(input_shape=x_train.shape[1:])

epochs = 24
batch_size = 32

callbacks = [
    keras.callbacks.ModelCheckpoint("best_model.keras", save_best_only=True, monitor="val_loss"),
    keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=20, min_lr=0.0001),
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=50, verbose=1),
    deepfreeze.Checkpoint("runs/timeseries", every=15),
]
compiling = {"optimizer": "adam", "loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
rank = 0
if HOROVOD:
    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    compiling |= {"optimizer": deepfreeze.DistributedOptimizer(keras.optimizers.Adam()), "jit_compile": False}
    # All ranks see the same averages, so that they decide alike; one rank writes the file.
    first = [deepfreeze.BroadcastState(), deepfreeze.AverageMetrics()]
    callbacks = first + (callbacks if rank == 0 else callbacks[1:])
    x_train, y_train = x_train[rank :: hvd.size()], y_train[rank :: hvd.size()]

model.compile(**compiling)
history = model.fit(
    x_train,
    y_train,
    batch_size=batch_size,
    epochs=epochs,
    callbacks=callbacks,
    validation_split=0.2,
    verbose=1 if rank == 0 else 0,
)

if rank == 0:
    model = keras.models.load_model("best_model.keras")
    test_loss, test_acc = model.evaluate(x_test, y_test)
    print("Test accuracy", test_acc)
    print("Test loss", test_loss)
