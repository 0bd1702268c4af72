"""A multilayer perceptron that tells types of cancer by their mutations, in the shape of CANDLE's P1B2.

The program restores before it compiles, where CANDLE's calls ``ckpt.restart(model)``, and passes the first epoch to ``fit``; as
CANDLE's callback does, DeepFreeze's saves at the end of each epoch. ``--horovod``: with the lines that Horovod asks for.
"""

import json
import logging
import os
import sys

import keras
import numpy as np
from keras.layers import Dense, Dropout, Input
from keras.regularizers import l2

import deepfreeze

logger = logging.getLogger("p1b2")
PARAMETERS = {
    "model_name": "p1b2",
    "dense": [64, 32, 16],
    "activation": "relu",
    "dropout": 0.1,
    "reg_l2": 0.00001,
    "loss": "categorical_crossentropy",
    "learning_rate": 0.01,
    "rng_seed": 2017,
    "batch_size": 16,
    "epochs": 20,
    "ckpt_save_interval": 1,
    "save_path": "save",
    "horovod": "--horovod" in sys.argv,
}


def load_data(parameters):
    random = np.random.default_rng(parameters["rng_seed"])
    rows, features, classes = 1040, 200, 10
    labels = random.integers(0, classes, rows)
    x = (random.random((rows, features)) < 0.05).astype("float32")
    x[np.arange(rows), labels] += 1
    return x[:800], keras.utils.to_categorical(labels[:800], classes), x[800:], labels[800:]


def build_model(parameters, inputs, outputs):
    weights = keras.initializers.GlorotUniform(seed=parameters["rng_seed"])
    bias = keras.initializers.Constant(0.0)
    vector = Input(shape=(inputs,))
    x = vector
    for units in parameters["dense"]:
        x = Dense(
            units,
            activation=parameters["activation"],
            kernel_initializer=weights,
            bias_initializer=bias,
            kernel_regularizer=l2(parameters["reg_l2"]),
            activity_regularizer=l2(parameters["reg_l2"]),
        )(x)
        if parameters["dropout"]:
            x = Dropout(parameters["dropout"])(x)
    output = Dense(outputs, activation="softmax", kernel_initializer=weights, bias_initializer=bias)(x)
    return keras.Model(inputs=vector, outputs=output)


def run(parameters):
    os.makedirs(parameters["save_path"], exist_ok=True)
    prefix = f"{parameters['save_path']}/{parameters['model_name']}.A=relu.B=16.D={parameters['dropout']}"
    logging.basicConfig(filename=f"{prefix}.log", level=logging.INFO)
    logger.info("Parameters: %s", parameters)

    x_train, y_train, x_test, y_test = load_data(parameters)
    keras.utils.set_random_seed(parameters["rng_seed"])
    model = build_model(parameters, x_train.shape[1], y_train.shape[1])
    optimizer = keras.optimizers.SGD(parameters["learning_rate"])
    compiling, callbacks, rank, size = {}, [], 0, 1
    if parameters["horovod"]:
        import horovod.tensorflow as hvd

        hvd.init()
        rank, size = hvd.rank(), hvd.size()
        x_train, y_train = x_train[rank::size], y_train[rank::size]
        optimizer = deepfreeze.DistributedOptimizer(optimizer)
        compiling = {"jit_compile": False}
        callbacks = [deepfreeze.BroadcastState(), deepfreeze.AverageMetrics()]
    validation = 0.2
    steps_per_epoch = int(len(x_train) * (1 - validation)) // parameters["batch_size"]

    checkpoint = deepfreeze.Checkpoint("runs/p1b2", every=steps_per_epoch * parameters["ckpt_save_interval"])
    initial_epoch = checkpoint.open(model) // steps_per_epoch
    logger.info("initial_epoch: %d", initial_epoch)

    model.compile(loss=parameters["loss"], optimizer=optimizer, metrics=["accuracy"], **compiling)
    if rank == 0:
        model.summary()
        with open(f"{prefix}.model.json", "w") as file:
            file.write(model.to_json())
        callbacks.append(keras.callbacks.CSVLogger(f"{prefix}.csv", append=True))
    model.fit(
        x_train,
        y_train,
        batch_size=parameters["batch_size"],
        epochs=parameters["epochs"],
        initial_epoch=initial_epoch,
        verbose=2 if rank == 0 else 0,
        validation_split=validation,
        callbacks=[*callbacks, checkpoint],
    )

    if rank == 0:
        predicted = model.predict(x_test, verbose=0).argmax(1)
        scores = {"accuracy": float((predicted == y_test).mean())}
        logger.info("Evaluation on test data: %s", scores)
        print("Evaluation on test data:", json.dumps(scores))


if __name__ == "__main__":
    run(PARAMETERS)
    keras.backend.clear_session()
