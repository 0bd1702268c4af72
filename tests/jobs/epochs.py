"""A training of 4 epochs of 30 batches with a learning rate for each epoch: epochs.py API RUN KILL MODEL [LOCAL]. MODEL is
"built" or "unbuilt", as it is when ``fit`` begins. Kills its ranks at the end of step KILL (0: never). It waits until a checkpoint is
committed; with LOCAL, until the local tier LOCAL has it. Prints which epochs it trained with which rates, and the last step."""

import os
import signal
import sys

import models

import deepfreeze


def main() -> None:
    api, run, kill, kind, *local = sys.argv[1:]
    keras = models.framework(api)
    ranked = "OMPI_COMM_WORLD_SIZE" in os.environ
    if ranked:
        import horovod.tensorflow as hvd

        hvd.init()

    def wrap(optimizer):
        return models.averaging(keras, optimizer) if ranked else optimizer

    if kind == "built":
        model = models.build(keras, "dense", optimizer=wrap(keras.optimizers.Adam(1e-3)))
    else:
        layers = keras.layers
        model = keras.Sequential([layers.Flatten(), layers.Dense(300, activation="relu"), layers.Dense(3)])
        model.compile(wrap(keras.optimizers.Adam(1e-3)), "mse", jit_compile=False)
    epochs, rates = [], []

    class Beside(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            epochs.append(epoch)
            rates.append(f"{float(model.optimizer.learning_rate.numpy()):.2g}")

        def on_train_batch_end(self, batch, logs=None):
            if int(model.optimizer.iterations.numpy()) == int(kill):
                os.kill(os.getpid(), signal.SIGKILL)

    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    waits = {"wait_for": "local", "local": local[0]} if local else {"wait_for": "external"}
    checkpoint = deepfreeze.Checkpoint(run, every=10, keep=100, **waits)
    broadcast = [deepfreeze.BroadcastState()] if ranked else []
    callbacks = [*broadcast, schedule, checkpoint, Beside()]
    model.fit(models.batches(30), epochs=4, verbose=0, shuffle=False, callbacks=callbacks)
    last = int(model.optimizer.iterations.numpy())
    print(f"epochs {', '.join(map(str, epochs))} with rates {', '.join(rates)} to step {last}")


main()
