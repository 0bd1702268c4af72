"""Case: a training, in FOLDER/run, with checkpoints at every n-th prime step (tests/extending/prime_steps.py). ``commit_seconds``: for each
rank, how long a commit may take before the rank wishes for n = 2. Returns as the case ``wishes`` does."""

import wishes

from tests.extending.prime_steps import PrimeSteps


def run(folder, steps, commit_seconds):
    import horovod.tensorflow as hvd

    hvd.init()
    policy = PrimeSteps(overhead=float("inf"), commit_seconds=commit_seconds[hvd.rank()], most=2)
    return wishes.train(folder, steps, policy, wait_for="external")
