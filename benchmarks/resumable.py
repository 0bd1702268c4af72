"""How much accuracy does an interrupted training lose if its input begins anew? python -m benchmarks.resumable --help

A small network learns real handwritten digits three times with each seed: without an interruption; interrupted about every two epochs,
with an input that is shuffled anew at each start; and interrupted at the same steps, with ``deepfreeze.data.Resumable``. Weights,
optimizer and count of steps are resumed exactly in both interrupted trainings; only the order of the samples differs. CheckFreq (FAST
2021, Figure 6) finds up to 13 % of accuracy lost without a resumable input. The accuracy is that on images that are not trained, each
time as many steps are done as an epoch has. Each interruption is an exception, after which a new model and a new callback resume from the
run.
"""

from __future__ import annotations

import argparse
import functools
import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import checkfreq_published, jobs
from benchmarks.report import Report, Row, run, say, table

WHOLE, SHUFFLED, RESUMED = "uninterrupted", "interrupted, shuffled anew", "interrupted, Resumable"
SEEDS, EPOCHS, BATCH, EVERY = range(1, 9), 12, 32, 10
FIGURE = "![Accuracy of three trainings](figures/resumable.png)"
PUBLISHED = "accuracy lost without a resumable input"


class Interruption(Exception):
    """In place of a kill."""


def measure(args: argparse.Namespace) -> Report:
    """Trains all three ways with each seed."""
    seeds, epochs = (list(SEEDS)[:1], 3) if args.quick else (list(SEEDS), EPOCHS)
    settings = {"epochs": epochs, "batch": BATCH, "every": EVERY, "seeds": seeds}
    report = Report("resumable", "What does an interrupted training lose if its input begins anew?", settings)
    for seed in seeds:
        say(f"seed {seed} ...")
        with jobs.places(args.folder) as (disk, _):
            trained = {
                way: Training(way, seed, epochs, disk / way.replace(" ", "-")) for way in (WHOLE, SHUFFLED, RESUMED)
            }
            for training in trained.values():
                training.train()
        for way, training in trained.items():
            row = report.row(way=way, seed=seed, interruptions=training.interruptions)
            row.add("accuracy", "", training.accuracy)
            row.add("other values", "", [training.differs_from(trained[WHOLE])])
    return report


@functools.cache
def digits() -> tuple[Any, ...]:
    """(train x, train y, test x, test y): float32 of shape (rows, 784) in [0, 1], int64."""
    from examples.resnet50 import data

    x, y, test_x, test_y = data.load(28)
    return x[..., 0].reshape(len(x), -1), y, test_x[..., 0].reshape(len(test_x), -1), test_y


class Training:
    """One training. ``accuracy``: of the images that are not trained, after each epoch's number of steps; ``interruptions``: how many there
    were; ``weights``: the last values of all variables."""

    def __init__(self, way: str, seed: int, epochs: int, run: Path) -> None:
        self._way, self._seed, self._epochs, self._run = way, seed, epochs, run
        self._at: dict[int, float] = {}
        self.interruptions, self.weights = 0, []
        self._batches = -(-len(digits()[0]) // BATCH)

    @property
    def accuracy(self) -> list[float]:
        """In the order of the epochs."""
        return [self._at[step] for step in sorted(self._at)]

    def train(self) -> None:
        """From the first to the last step, with all interruptions."""
        drawn = random.Random(self._seed)
        last, stop = self._epochs * self._batches, 0
        while True:
            stop += int(self._batches * drawn.uniform(1.5, 2.5))
            try:
                self._fit(last + 1 if self._way == WHOLE else stop)
            except Interruption:
                self.interruptions += 1
                continue
            return

    def _fit(self, stop: int) -> None:
        """Goes on from the newest checkpoint, until the step ``stop`` interrupts it."""
        import keras
        import tensorflow as tf

        import deepfreeze
        from deepfreeze.data import Resumable

        x, y, test_x, test_y = digits()
        keras.utils.set_random_seed(self._seed)
        layers = keras.layers
        model = keras.Sequential([keras.Input((784,)), layers.Dense(64, "relu"), layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
        judge = keras.models.clone_model(model)
        if self._way == SHUFFLED:
            order = self._seed * 1000 + self.interruptions
            data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=order).batch(BATCH).prefetch(2)
            checkpoint = deepfreeze.Checkpoint(self._run, every=EVERY, verbose=0)
        else:
            data = Resumable((x, y), batch_size=BATCH, seed=self._seed)
            checkpoint = deepfreeze.Checkpoint(self._run, every=EVERY, verbose=0, data=data)

        def after(batch: int, logs: Any = None) -> None:
            step = int(np.asarray(model.optimizer.iterations))
            if step % self._batches == 0:
                judge.set_weights(model.get_weights())
                self._at[step] = float(np.mean(np.argmax(judge.predict_on_batch(test_x), 1) == test_y))
            if step == stop:
                raise Interruption

        try:
            beside = keras.callbacks.LambdaCallback(on_train_batch_end=after)
            shuffle = self._way != SHUFFLED  # Keras warns that it does not shuffle a dataset
            model.fit(data, epochs=self._epochs, verbose=0, shuffle=shuffle, callbacks=[checkpoint, beside])
        finally:
            checkpoint.close()
        self.weights = [np.array(one.numpy()) for one in model.weights + model.optimizer.variables]

    def differs_from(self, other: Training) -> int:
        """How many variables have other bits than those of ``other`` at the end."""
        pairs = zip(self.weights, other.weights, strict=True)
        return sum(one.tobytes() != its.tobytes() for one, its in pairs)


def rows_of(report: Report, way: str) -> list[Row]:
    """The rows of one way, a seed each."""
    return [row for row in report.rows if row.labels["way"] == way]


def lost(report: Report, way: str) -> list[float]:
    """By how much the last accuracy of each seed is below that of the uninterrupted training."""
    pairs = zip(rows_of(report, WHOLE), rows_of(report, way), strict=True)
    return [whole.samples("accuracy")[-1] - row.samples("accuracy")[-1] for whole, row in pairs]


def tables(report: Report) -> str:
    """The last accuracies, and the loss beside the paper's."""
    lines = []
    for way in (WHOLE, SHUFFLED, RESUMED):
        rows, losses = rows_of(report, way), lost(report, way)
        last = [row.samples("accuracy")[-1] for row in rows]
        same = sum(row.samples("other values") == [0] for row in rows)
        lines.append(
            [
                way,
                f"{statistics.fmean(row.labels['interruptions'] for row in rows):.1f}",
                f"{statistics.fmean(last):.2%} ({min(last):.2%}..{max(last):.2%})",
                f"{statistics.fmean(losses):+.2%} ({min(losses):+.2%}..{max(losses):+.2%})",
                f"{same} of {len(rows)}",
            ]
        )
    published = checkfreq_published.value("Figure 6", "ResNet18", "70 epochs; interrupted every 7 min", PUBLISHED)
    lines.append(["CheckFreq, Figure 6: ResNet18, shuffled anew", "-", "-", f"{published:.0f} % at most", "-"])
    head = [
        "training",
        "interruptions, mean",
        "last accuracy, mean (range)",
        "accuracy lost, mean (range)",
        "bit for bit as uninterrupted",
    ]
    return "\n\n".join([table(head, lines), FIGURE])


def draw(report: Report, path: Path) -> None:
    """The three accuracies over the epochs: means of all seeds, with the range."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.8), layout="constrained")
    for way, style in ((WHOLE, "-"), (SHUFFLED, "-."), (RESUMED, ":")):
        values = np.array([row.samples("accuracy") for row in rows_of(report, way)])
        epochs = np.arange(1, values.shape[1] + 1)
        (line,) = axes.plot(epochs, values.mean(0), style, label=way)
        axes.fill_between(epochs, values.min(0), values.max(0), color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set(xlabel="epochs", ylabel="accuracy, mean and range of all seeds", ylim=(0.85, None))
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    run("resumable", __doc__ or "", measure, tables, draw)
