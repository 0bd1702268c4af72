"""The seed of the random tests: printed by each, and repeated with DEEPFREEZE_TEST_SEED."""

import os
import random

SEED = int(os.environ.get("DEEPFREEZE_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
