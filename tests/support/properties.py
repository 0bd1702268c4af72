"""How all property tests of this suite use Hypothesis: examples follow from the run's seed, and nothing is kept between runs.

``make test-all`` asks for twenty times as many examples, by DEEPFREEZE_TEST_EXAMPLES=20.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, configuration, given, seed, settings

from tests.support.seed import SEED

TIMES = int(os.environ.get("DEEPFREEZE_TEST_EXAMPLES", "1"))

# Hypothesis keeps tables of Unicode in a folder, by default in the current one.
configuration.set_hypothesis_home_dir(str(Path(__file__).resolve().parents[2] / "build" / "hypothesis"))


def holds(*, examples: int = 50, **values: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a test that must hold for all values drawn from ``values``, a strategy for each argument. There is no deadline, since
    the machine may be busy."""
    options = settings(
        max_examples=examples * TIMES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    return lambda test: seed(SEED)(options(given(**values)(test)))
