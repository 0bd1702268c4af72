"""Whether what a soak sampled stays flat.

Judged are the samples taken between two jobs, when nothing is under way whose amount would depend on how busy the machine is. Jobs are
of two kinds, so the samples of each two are averaged. A least-squares line through the averages of the second half (the first is for
warming up) says how much a quantity grows. It is flat if over that whole half it grows by no more than 2 % of its median, or by what
is named here if that is more: a fraction of one checkpoint, one descriptor, one thread. Twice the standard error of the line is
given away: what can be told from noise counts, which is little in minutes and nearly all in hours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

FEWEST = 12  # samples
SHARE = 0.02
FLOORS = {
    "memory": 2.0,  # MiB
    "shared memory": 1.0,
    "descriptors": 1.0,
    "threads": 1.0,
    "run": 1.0,
    "run files": 4.0,
    "local tier": 1.0,
    "local tier files": 1.0,
}


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The slope of the least-squares line, and its standard error."""
    slope, intercept = statistics.linear_regression(x, y)
    middle = statistics.mean(x)
    residual = sum((b - slope * a - intercept) ** 2 for a, b in zip(x, y))
    return slope, math.sqrt(residual / (len(x) - 2) / sum((a - middle) ** 2 for a in x))


def pairs(values: Sequence[float]) -> list[float]:
    """The average of each two."""
    return [(a + b) / 2 for a, b in zip(values[::2], values[1::2])]


def judge(name: str, seconds: Sequence[float], values: Sequence[float]) -> dict[str, float | bool]:
    """The second half of one quantity: median, growth over that half (and two standard errors of it), growth in an hour, what is
    allowed, the verdict."""
    if len(values) < FEWEST:
        raise ValueError(f"{len(values)} jobs are too few to tell: {FEWEST} are needed")
    x, y = pairs(seconds), pairs(values)
    half = len(x) // 2
    x, y = x[half:], y[half:]
    per_second, error = line(x, y)
    span = x[-1] - x[0]
    growth, noise = per_second * span, 2 * error * span
    allowed = max(SHARE * statistics.median(y), FLOORS[name])
    return {
        "median": round(statistics.median(y), 3),
        "growth": round(growth, 3),
        "noise": round(noise, 3),
        "per_hour": round(3600 * per_second, 3),
        "allowed": round(allowed, 3),
        "flat": growth - noise <= allowed,
    }
