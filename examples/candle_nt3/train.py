"""Trains NT3 on real tumours, data-parallel under Horovod, with DeepFreeze. Runs alone, under horovodrun and under mpirun."""

import argparse
import json
import time

import horovod.tensorflow as hvd
import keras
import numpy as np

import data
import deepfreeze
import parameters
from model import nt3


def options():
    """The parameters, as CANDLE's programs have them, and the options of this program, by name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--genes", type=int, default=data.GENES, help="pad to so many inputs (published: 60483)")
    parser.add_argument("--report", type=int, default=5, help="steps between lines of progress")
    parser.add_argument("--json", metavar="FILE", help="rank 0 writes a summary there")
    return parameters.finalize(parser)


class Progress(keras.callbacks.Callback):
    """Prints on rank 0 how far the training is, and keeps the duration of each step in seconds. Comes behind Checkpoint in the list."""

    def __init__(self, total, every):
        super().__init__()
        self.start = self.step = 0
        self.total, self.every, self.seconds = total, every, []

    def on_train_begin(self, logs=None):
        self.start = self.step = int(self.model.optimizer.iterations)

    def on_train_batch_begin(self, batch, logs=None):
        self.begun = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds.append(time.perf_counter() - self.begun)
        self.step += 1
        if hvd.rank() == 0 and (self.step % self.every == 0 or self.step == self.total):
            print(f"step {self.step} of {self.total}: loss {logs['loss']:.4f}, {self.seconds[-1]:.2f} s", flush=True)


def main():
    params = options()
    hvd.init()
    rank, ranks = hvd.rank(), hvd.size()
    keras.utils.set_random_seed(
        params["rng_seed"] + rank
    )  # dropout differs per rank; BroadcastState makes the weights equal

    x, y, test_x, test_y = data.load(params["genes"])
    # Deals the tumours of each epoch to the ranks, and knows which of them are trained.
    tumours = deepfreeze.data.Resumable((x, y), batch_size=params["batch_size"], seed=params["rng_seed"])
    total = params["epochs"] * len(tumours)
    print(f"rank {rank} of {ranks}: {len(tumours)} batches in each epoch of {len(x)} tumours", flush=True)

    model = nt3(params["genes"], data.CLASSES)
    # Falls to 0 with the last step, by the optimizer's own count, so a resumed job goes on where it was.
    rate = keras.optimizers.schedules.CosineDecay(params["learning_rate"], max(total, 1))
    optimizer = deepfreeze.DistributedOptimizer(keras.optimizers.Adam(rate))
    # Horovod's operations run on the host between TensorFlow's: XLA cannot compile them.
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)

    # CANDLE's ckpt_* parameters say when to save, and what stays. fit() restores the newest checkpoint of this run, if there
    # is one, and goes on with the next batch: a resumed job trains as if it had never stopped.
    checkpoint = deepfreeze.Checkpoint.from_candle(params, data=tumours)
    progress = Progress(total, params["report"])
    callbacks = [deepfreeze.BroadcastState(), checkpoint, progress]
    model.fit(tumours, epochs=params["epochs"], verbose=0, callbacks=callbacks)
    summarise(params["json"], model, checkpoint.stats, progress, test_x, test_y)


def summarise(file_name, model, stats, progress, test_x, test_y):
    bytes_per_rank = hvd.allgather_object(int(np.max(stats.nbytes, initial=0)))
    if hvd.rank() != 0:
        return
    probabilities = model.predict(test_x, batch_size=len(test_x), verbose=0)
    summary = {
        "ranks": hvd.size(),
        "steps": progress.step,
        "resumed_from": stats.resumed,
        "checkpoints": list(stats.steps),
        "blocking_seconds": list(stats.blocking),
        "bytes_per_rank": bytes_per_rank,
        "step_seconds": float(np.median(progress.seconds)) if progress.seconds else None,
        "test_accuracy": float(np.mean(probabilities.argmax(axis=1) == test_y)),
        "test_loss": float(-np.mean(np.log(probabilities[np.arange(len(test_y)), test_y]))),
    }
    begun = f"resumed at step {progress.start}" if progress.start else "from step 0"
    print(f"{begun}, now at step {progress.step}; test accuracy {summary['test_accuracy']}", flush=True)
    if file_name:
        with open(file_name, "w") as file:
            json.dump(summary, file, indent=1)


if __name__ == "__main__":
    main()
