"""Whether what a soak sampled stays flat.

Jobs differ, and a sample may fall into a commit or between two jobs. So the samples of each cycle of two jobs, one of either
kind, are averaged. A least-squares line through the averages of the second half (the first is for warming up) says how much a
quantity grows. It is flat if over that whole half it grows by no more than 2 % of its median, or by what is named here if that
is more: a fraction of one checkpoint, one descriptor, one thread. Twice the standard error of the line is given away: what can
be told from noise counts, which is little in minutes and nearly all in hours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

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


def cycles(jobs: Sequence[int], seconds: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Average time and value of each whole cycle of two jobs."""
    grouped: dict[int, list[tuple[float, float]]] = {}
    for job, second, value in zip(jobs, seconds, values):
        grouped.setdefault((job - 1) // 2, []).append((second, value))
    # The last one may have been cut off, and before the first job there is none.
    whole = [grouped[number] for number in sorted(grouped)[:-1] if number >= 0]
    return [statistics.mean(x for x, _ in pairs) for pairs in whole], [
        statistics.mean(y for _, y in pairs) for pairs in whole
    ]


def judge(name: str, jobs: Sequence[int], seconds: Sequence[float], values: Sequence[float]) -> dict[str, float | bool]:
    """The second half of one quantity: median, growth over that half (and two standard errors of it), growth in an hour, what is
    allowed, the verdict."""
    x, y = cycles(jobs, seconds, values)
    half = len(x) // 2
    x, y = x[half:], y[half:]
    if len(x) < 3:
        raise ValueError(f"{len(x)} cycles of jobs are too few to tell: let it run for longer")
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
