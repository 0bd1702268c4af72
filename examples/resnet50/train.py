"""Trains ResNet-50 on real images, data-parallel under Horovod, with DeepFreeze. Runs alone, under horovodrun and under mpirun."""

import argparse
import json
import math
import time

import horovod.tensorflow as hvd
import keras
import numpy as np

import data
import deepfreeze


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="runs/resnet50", help="directory of this run's checkpoints")
    parser.add_argument("--every", type=int, default=15, help="steps between checkpoints; 0: none, for comparison")
    parser.add_argument("--resume", default="auto", choices=["auto", "required", "off"])
    parser.add_argument("--steps", type=int, help="train up to this step (default: as many as --epochs makes)")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32, help="images per rank and step")
    parser.add_argument("--size", type=int, default=32, help="images are resized to SIZE x SIZE; 32 is the least")
    parser.add_argument("--rows", type=int, help="train on so many images only (default: all 4500)")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=int, default=5, help="steps between lines of progress")
    parser.add_argument("--json", metavar="FILE", help="rank 0 writes a summary there")
    return parser.parse_args()


class Progress(keras.callbacks.Callback):
    """Prints on rank 0 how far the training is, and keeps the duration of each step in seconds."""

    def __init__(self, start, total, every):
        super().__init__()
        self.step, self.total, self.every, self.seconds = start, total, every, []

    def on_train_batch_begin(self, batch, logs=None):
        self.begun = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        self.seconds.append(time.perf_counter() - self.begun)
        self.step += 1
        if hvd.rank() == 0 and (self.step % self.every == 0 or self.step == self.total):
            print(f"step {self.step} of {self.total}: loss {logs['loss']:.4f}, {self.seconds[-1]:.2f} s", flush=True)


def main():
    args = options()
    hvd.init()
    rank, ranks = hvd.rank(), hvd.size()
    keras.utils.set_random_seed(args.seed + rank)

    x, y, test_x, test_y = data.load(args.size, args.rows)
    steps_per_epoch = math.ceil(len(x) / (args.batch * ranks))
    total = args.steps if args.steps is not None else args.epochs * steps_per_epoch
    mine = data.rows_of(rank, ranks, len(x))
    print(f"rank {rank} of {ranks}: rows {mine[0]}..{mine[-1]}", flush=True)
    x, y = x[mine], y[mine]

    model = keras.applications.ResNet50(weights=None, classes=data.CLASSES, input_shape=(args.size, args.size, 3))
    optimizer = deepfreeze.DistributedOptimizer(keras.optimizers.SGD(args.lr, momentum=args.momentum))
    # Horovod's operations run on the host between TensorFlow's: XLA cannot compile them.
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)

    # open() restores the newest checkpoint of this run, if there is one, and returns the step to start at. The batches
    # begin at that step too, and fit() runs the steps that are left: a resumed job trains as if it had never stopped.
    checkpoint = deepfreeze.Checkpoint(args.run, every=args.every, resume=args.resume) if args.every else None
    start = checkpoint.open(model) if checkpoint else 0
    progress = Progress(start, total, args.report)
    if start < total:
        callbacks = [deepfreeze.BroadcastState(), progress, *([checkpoint] if checkpoint else [])]
        batches = data.batches(x, y, args.batch, start, args.seed)
        model.fit(batches, steps_per_epoch=total - start, epochs=1, shuffle=False, verbose=0, callbacks=callbacks)
    summarise(args, model, checkpoint, progress, start, test_x, test_y)


def summarise(args, model, checkpoint, progress, start, test_x, test_y):
    stats = checkpoint.stats if checkpoint else None
    bytes_per_rank = hvd.allgather_object(int(np.max(stats.nbytes, initial=0)) if stats else 0)
    if hvd.rank() != 0:
        return
    probabilities = model.predict(test_x, batch_size=100, verbose=0)
    summary = {
        "ranks": hvd.size(),
        "steps": progress.step,
        "resumed_from": stats.resumed if stats else None,
        "checkpoints": list(stats.steps) if stats else [],
        "blocking_seconds": list(stats.blocking) if stats else [],
        "bytes_per_rank": bytes_per_rank,
        "step_seconds": float(np.median(progress.seconds)) if progress.seconds else None,
        "test_accuracy": float(np.mean(probabilities.argmax(axis=1) == test_y)),
        "test_loss": float(-np.mean(np.log(probabilities[np.arange(len(test_y)), test_y]))),
    }
    begun = f"resumed at step {start}" if start else "from step 0"
    print(f"{begun}, now at step {progress.step}; test accuracy {summary['test_accuracy']}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(summary, file, indent=1)


if __name__ == "__main__":
    main()
