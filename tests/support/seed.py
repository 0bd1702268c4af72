"""The seed of the random tests: in the header of every run, the same for all its processes, repeated with DEEPFREEZE_TEST_SEED."""

import os
import random

NAME = "DEEPFREEZE_TEST_SEED"
SEED = int(os.environ.get(NAME) or random.SystemRandom().randrange(1, 2**31))
os.environ[NAME] = str(SEED)  # workers and jobs that are started from here have it too
