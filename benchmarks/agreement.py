"""What does it cost that the ranks agree, in every step, and that their replicas are compared? python -m benchmarks.agreement --help

The control word: four integers, max-reduced by Horovod in the step's graph. Two functions take turns in one job of 2 ranks, step
by step: a forward and backward pass of 12 dense layers with one allreduce per gradient, and the same with the word. Beside them,
the callback's reading of the word after each step. Replicas: the checksum of all weights, read where they lie by one thread, which
the ranks take at the first two checkpoints; and the checksums of one of 64 parts, as at each later one. The parts take turns, so none is
in the processor's cache.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import veloc_bindings
from benchmarks import jobs, report, workloads
from benchmarks.report import Report, interval, say, span, table
from deepfreeze.freeze.replicas import ReplicaChecksums
from deepfreeze.plan.comparisons import Compared

STEPS = 60
CHECKED = ("nt3", "resnet50")
PARTS = 64  # what deepfreeze.Replicas has if nothing else is asked for


def measure(args: argparse.Namespace) -> Report:
    """One job of 2 ranks, then checksums in this process."""
    found = Report("agreement", "What does it cost that the ranks agree?")
    steps = 10 if args.quick else STEPS
    say(f"{steps} steps with and without the word, in turns")
    with jobs.places(args.folder) as (disk, _):
        ranks = jobs.gather("agreement_rank", {"steps": steps}, 2, disk)
    row = found.row(kind="word", ranks=2, steps=steps)
    # A step is over when the slower rank is done with it.
    for name in ("without", "with", "read"):
        row.add(name, "s", [max(values) for values in zip(*(rank[name] for rank in ranks))])
    row.add("difference", "s", [b - a for a, b in zip(row.samples("without"), row.samples("with"))])
    row.add("interval", "s", interval(row.samples("difference")))
    for name in ("light",) if args.quick else CHECKED:
        nbytes = workloads.nbytes(name)
        say(f"checksums of {nbytes / 1e6:.0f} MB")
        data = np.ones(nbytes, np.uint8)
        took = []
        for _ in range(args.samples):
            begun = time.perf_counter()
            veloc_bindings.crc32c(data)
            took.append(time.perf_counter() - begun)
        row = found.row(kind="replicas", workload=name, nbytes=nbytes).add("checksums", "s", took)
        del data
        checksums = replicas(workloads.arrays(name))
        row.add("part", "s", [_took(checksums, Compared(n, PARTS)) for _ in range(args.samples) for n in range(PARTS)])
    return found


def replicas(arrays: dict[str, np.ndarray]) -> ReplicaChecksums:
    """The checksums of tensors that lie in numpy's arrays, in a job of more ranks than one."""
    tensors: Any = [SimpleNamespace(path=path, variable=array) for path, array in arrays.items()]
    placed = [
        SimpleNamespace(path=path, spec=SimpleNamespace(name=path, nbytes=array.nbytes))
        for path, array in arrays.items()
    ]
    capture: Any = SimpleNamespace(memory_of=lambda array: array.reshape(-1).view(np.uint8))
    structure: Any = SimpleNamespace(replicated=placed)
    return ReplicaChecksums(capture, tensors, structure, world_size=2)


def _took(checksums: ReplicaChecksums, part: Compared) -> float:
    begun = time.perf_counter()
    checksums.take(part)
    return time.perf_counter() - begun


def tables(found: Report) -> str:
    """The word, and the comparison of replicas."""
    row = found.find(kind="word")
    low, high = row.values["interval"]["min"] * 1e3, row.values["interval"]["max"] * 1e3
    cells = [
        row.labels["ranks"],
        span(row, "without", 1e3),
        span(row, "with", 1e3),
        f"{row.median('difference') * 1e3:.2f} ({low:.2f}..{high:.2f})",
        span(row, "read", 1e3, 3),
    ]
    header = ["ranks", "step without, ms", "step with, ms", f"difference of {row.labels['steps']} pairs, ms (95 %)"]
    word = table([*header, "reading it, ms"], [cells])
    rows = [row for row in found.rows if row.labels["kind"] == "replicas"]
    lines = [
        [r.labels["workload"], f"{r.labels['nbytes'] / 1e6:.0f}", span(r, "checksums", 1e3), span(r, "part", 1e3, 2)]
        for r in rows
    ]
    return (
        word + "\n\n" + table(["workload", "MB of weights", "their checksums, ms", f"one of {PARTS} parts, ms"], lines)
    )


def draw(found: Report, path: Path) -> None:
    """Steps with and without the word, as distributions."""
    row = found.find(kind="word")
    names = {"without": "without the word", "with": "with the word"}
    curves = {text: [value * 1e3 for value in row.samples(name)] for name, text in names.items()}
    what = ("step, ms", "part of the steps that take no longer")
    report.distributions(path, f"The control word, {row.labels['ranks']} ranks", what, curves)


if __name__ == "__main__":
    report.run("agreement", __doc__ or "", measure, tables, draw)
