"""A 1D convolutional network that tells tumour from normal tissue by gene expression, in the shape of CANDLE's NT3.

Where CANDLE's program makes its checkpoint callback and calls ``candle.restart``, there is the one line of DeepFreeze; and CSVLogger
appends. ``--horovod``: with the lines that Horovod asks for.
"""

import os
import sys
import time

import keras
import numpy as np
from keras.callbacks import Callback, CSVLogger, ReduceLROnPlateau
from keras.layers import Activation, Conv1D, Dense, Dropout, Flatten, Input, MaxPooling1D

import deepfreeze

PARAMETERS = {
    "model_name": "nt3",
    "conv": [8, 20, 1, 8, 10, 1],
    "pool": [1, 10],
    "dense": [20, 10],
    "activation": "relu",
    "out_activation": "softmax",
    "dropout": 0.1,
    "classes": 2,
    "loss": "categorical_crossentropy",
    "metrics": "accuracy",
    "learning_rate": 0.001,
    "batch_size": 20,
    "epochs": 16,
    "timeout": 3600,
    "output_dir": "save",
    "horovod": "--horovod" in sys.argv,
}


class TerminateOnTimeOut(Callback):
    """Ends the training after so many seconds."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def on_train_begin(self, logs=None):
        self.end = time.monotonic() + self.seconds

    def on_epoch_end(self, epoch, logs=None):
        if time.monotonic() > self.end:
            print(f"On epoch {epoch} the time is over")
            self.model.stop_training = True


def load_data(parameters):
    random = np.random.default_rng(1)
    rows, genes = {"train": 1120, "test": 280}, 60
    loaded = []
    for count in rows.values():
        labels = random.integers(0, parameters["classes"], count)
        expression = random.normal(size=(count, genes)).astype("float32")
        expression[:, :20] += labels[:, None]
        loaded += [expression / np.abs(expression).max(0), keras.utils.to_categorical(labels, parameters["classes"])]
    return loaded


def build_model(parameters, genes):
    model = keras.Sequential([Input((genes, 1))])
    for number, place in enumerate(range(0, len(parameters["conv"]), 3)):
        filters, length, stride = parameters["conv"][place : place + 3]
        print(number, filters, length, stride)
        model.add(Conv1D(filters, length, strides=stride, padding="valid"))
        model.add(Activation(parameters["activation"]))
        if parameters["pool"]:
            model.add(MaxPooling1D(parameters["pool"][number]))
    model.add(Flatten())
    for units in parameters["dense"]:
        model.add(Dense(units))
        model.add(Activation(parameters["activation"]))
        if parameters["dropout"]:
            model.add(Dropout(parameters["dropout"]))
    model.add(Dense(parameters["classes"]))
    model.add(Activation(parameters["out_activation"]))
    return model


def run(parameters):
    print("Parameters:", parameters)
    x_train, y_train, x_test, y_test = load_data(parameters)
    x_train, x_test = np.expand_dims(x_train, 2), np.expand_dims(x_test, 2)
    print("x_train:", x_train.shape, "y_train:", y_train.shape)

    model = build_model(parameters, x_train.shape[1])
    optimizer = keras.optimizers.SGD(parameters["learning_rate"])
    compiling, first, rank = {}, [], 0
    if parameters["horovod"]:
        import horovod.tensorflow as hvd

        hvd.init()
        rank = hvd.rank()
        x_train, y_train = x_train[rank :: hvd.size()], y_train[rank :: hvd.size()]
        optimizer = deepfreeze.DistributedOptimizer(optimizer)
        compiling = {"jit_compile": False}
        first = [deepfreeze.BroadcastState(), deepfreeze.AverageMetrics()]
    model.summary()
    model.compile(loss=parameters["loss"], optimizer=optimizer, metrics=[parameters["metrics"]], **compiling)

    os.makedirs(parameters["output_dir"], exist_ok=True)
    name = f"{parameters['output_dir']}/{parameters['model_name']}"
    callbacks = [
        *first,
        ReduceLROnPlateau(monitor="val_loss", factor=0.1, patience=10, verbose=1, mode="auto", cooldown=0, min_lr=0),
        TerminateOnTimeOut(parameters["timeout"]),
        deepfreeze.Checkpoint("runs/nt3", every=15),
    ]
    if rank == 0:
        callbacks.insert(len(first), CSVLogger(f"{name}.training.log", append=True))
    history = model.fit(
        x_train,
        y_train,
        batch_size=parameters["batch_size"],
        epochs=parameters["epochs"],
        verbose=1 if rank == 0 else 0,
        validation_data=(x_test, y_test),
        callbacks=callbacks,
    )

    loss, accuracy = model.evaluate(x_test, y_test, verbose=0)
    if rank == 0:
        print("Test loss:", loss)
        print("Test accuracy:", accuracy)
        with open(f"{name}.model.json", "w") as file:
            file.write(model.to_json())
        model.save_weights(f"{name}.weights.h5")
        print("Saved model to disk")
        with open(f"{name}.model.json") as file:
            loaded = keras.models.model_from_json(file.read())
        loaded.load_weights(f"{name}.weights.h5")
        loaded.compile(loss=parameters["loss"], optimizer="sgd", metrics=[parameters["metrics"]])
        print("Loaded test accuracy:", loaded.evaluate(x_test, y_test, verbose=0)[1])
    return history


if __name__ == "__main__":
    run(PARAMETERS)
    keras.backend.clear_session()
