"""The figures that the DeepFreeze paper published (benchmarks/published/deepfreeze.csv): how far its approach is below the others."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

FILE = Path(__file__).resolve().parent / "published" / "deepfreeze.csv"
OURS = "veloc-opt"
METRICS = {"blocking phase": "blocking", "runtime overhead": "overhead"}
# The paper's workload: ours of as many bytes that is trained on one rank, and on several.
WORKLOADS = {"NT3": ("nt3", "light"), "ResNet-50": ("resnet50", "resnet50")}
NODES = (1, 2, 4, 8)


@functools.cache
def ratios() -> dict[tuple[str, int, str], dict[str, float]]:
    """(the paper's workload, nodes, "blocking" or "overhead") -> approach -> its time over the time of ``OURS``."""
    found: dict[tuple[str, int, str], dict[str, float]] = {}
    with FILE.open(newline="") as file:
        for line in csv.DictReader(file):
            if line["metric"] in METRICS:
                below = line["compared"].removeprefix("VELOC-Opt below ").lower()
                key = line["workload"], int(line["nodes"]), METRICS[line["metric"]]
                found.setdefault(key, {})[below] = float(line["value"])
    return found
