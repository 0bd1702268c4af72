"""The seed of the random tests. It is the same in all processes of a run, the run's header shows it, and DEEPFREEZE_TEST_SEED sets it."""

import os
import random

NAME = "DEEPFREEZE_TEST_SEED"
SEED = int(os.environ.get(NAME) or random.SystemRandom().randrange(1, 2**31))
os.environ[NAME] = str(SEED)  # workers and jobs that are started from here have it too
