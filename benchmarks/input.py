"""How fast is the resumable input, beside tf.data? python -m benchmarks.input --help

The same arrays, in memory, as rows of an image and a label: once through ``from_tensor_slices().shuffle(N).batch(B).prefetch()``, once
through ``deepfreeze.data.Resumable``, and once through a ``PyDataset`` of two lines, which shows what Keras's own way with such inputs
costs. Two ways of taking batches: ``loop`` iterates, and ``fit`` trains the convolutional network of Keras's introduction (two convolutions
of 32 and 64 filters). Epochs of the inputs take turns, so each sample is a ratio of neighbours. TensorFlow keeps its default numbers of
threads.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.report import Report, Row, say, span, table

WAYS = ("loop", "fit")
BATCHES = (32, 256)


def epochs(way: str, batch: int, rows: int) -> dict[str, Callable[[], Any]]:
    """By input, what goes over ``rows`` rows once."""
    import keras
    import numpy as np
    import tensorflow as tf

    from deepfreeze.data import Resumable

    x = np.random.default_rng(0).random((rows, 28, 28, 1), dtype=np.float32)
    y = np.arange(rows) % 10
    slices = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(rows).batch(batch).prefetch(tf.data.AUTOTUNE)

    class Rows(keras.utils.PyDataset):
        def __len__(self) -> int:
            return rows // batch

        def __getitem__(self, number: int) -> Any:
            return x[number * batch : (number + 1) * batch], y[number * batch : (number + 1) * batch]

    inputs = {"tf.data": slices, "Resumable": Resumable((x, y), batch, seed=1), "PyDataset": Rows()}
    if way == "loop":
        del inputs["PyDataset"]
        return {name: lambda data=data: [None for _ in data] for name, data in inputs.items()}
    layers = [keras.Input((28, 28, 1))]
    for filters in (32, 64):
        layers += [keras.layers.Conv2D(filters, 3, activation="relu"), keras.layers.MaxPool2D()]
    layers += [keras.layers.Flatten(), keras.layers.Dropout(0.5), keras.layers.Dense(10, "softmax")]
    model = keras.Sequential(layers)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    return {name: lambda data=data: model.fit(data, verbose=0) for name, data in inputs.items()}


def measure(args: argparse.Namespace) -> Report:
    """All ways and sizes of batches, in this process."""
    found = Report("input", "How fast is the resumable input, beside tf.data?")
    for way in WAYS:
        for batch in BATCHES:
            rows = 2048 if args.quick else 60_000 if way == "loop" else 12_800
            say(f"{way}, batches of {batch}, {rows} rows")
            inputs = epochs(way, batch, rows)
            rates: dict[str, list[float]] = {name: [] for name in inputs}
            for turn in range(1 + 5 * args.samples):
                for name, epoch in inputs.items():
                    begun = time.perf_counter()
                    epoch()
                    if turn:  # the first one traces, and touches memory
                        rates[name].append(rows / (time.perf_counter() - begun))
            row = found.row(way=way, batch=batch, rows=rows)
            for name, samples in rates.items():
                row.add(name, "items/s", samples)
            ours, theirs = rates["Resumable"], rates["tf.data"]
            row.add("ratio", "", [one / other for one, other in zip(ours, theirs, strict=True)])
            pairs = zip(rates.get("PyDataset", ()), theirs, strict=False)
            row.add("ratio of a PyDataset", "", [one / other for one, other in pairs])
    return found


def tables(found: Report) -> str:
    """Throughput of both, and the ratio of neighbouring epochs."""

    def cells(row: Row) -> list[Any]:
        rates = [span(row, name, 1e-3, 0) for name in ("tf.data", "Resumable")]
        other = span(row, "ratio of a PyDataset", digits=2) if row.samples("ratio of a PyDataset") else "-"
        return [row.labels["way"], row.labels["batch"], *rates, span(row, "ratio", digits=2), other]

    header = ["way", "batch", "tf.data, 1000 items/s", "Resumable, 1000 items/s", "ratio", "ratio of a PyDataset"]
    return table(header, map(cells, found.rows))


def draw(found: Report, path: Path) -> None:
    """The distributions of the ratios."""
    curves = {f"{row.labels['way']}, batches of {row.labels['batch']}": row.samples("ratio") for row in found.rows}
    report.distributions(path, "Throughput, Resumable to tf.data", ("ratio", "part of the epochs"), curves)


if __name__ == "__main__":
    report.run("input", __doc__ or "", measure, tables, draw)
