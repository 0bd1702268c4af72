"""The Khan gene-expression data: 83 small round blue cell tumours of 4 types, 2308 genes each, split into 63 for training and 20 for tests
as published.

Reads the files of the installed package ISLP without importing it, because the import needs pandas and scikit-learn."""

from importlib.metadata import PackageNotFoundError, distribution

import numpy as np

GENES = 2308
CLASSES = 4


def _table(name):
    try:
        path = distribution("ISLP").locate_file(f"ISLP/data/Khan_{name}.csv")
    except PackageNotFoundError:
        raise SystemExit("the data is not installed; run: pip install --no-deps ISLP==0.6.0") from None
    return np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)


def load(genes=GENES):
    """(train x, train y, test x, test y). x is float32 of shape (samples, genes, 1), as NT3 takes it; y is int64, classes from 0.

    Each sample is standardised over its genes, because the test samples were measured at another level. Then each gene is centred on
    its mean over the training rows, and everything is scaled to unit variance. The published rows are sorted by class. The training
    rows are shuffled, in the same way in each call. ``genes`` may be more than the data has
    (NT3's published size is 60483): the others are zeros, which gives the published network and memory without more information."""
    if genes < GENES:
        raise SystemExit(f"--genes {genes}: the data has {GENES} genes; give that or more")
    train, test = _table("xtrain"), _table("xtest")
    train, test = ((x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) for x in (train, test))
    mean = train.mean(0)
    scale = (train - mean).std()
    pad = ((0, 0), (0, genes - GENES))
    train, test = (np.pad((x - mean) / scale, pad)[:, :, None] for x in (train, test))
    order = np.random.default_rng(0).permutation(len(train))
    return train[order], _label("ytrain")[order], test, _label("ytest")


def _label(name):
    return _table(name).astype(np.int64) - 1


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
