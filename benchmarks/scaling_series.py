"""The series of ``benchmarks.scaling``: each varies one thing, over engines on rank processes, and adds one row for each value.

A row's labels are ``series`` and ``x``, the value; rows of "operations" also say ``who``.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import workloads
from benchmarks.ranks import OPERATIONS, Burst, Job, Ranks, Regions, Saved, footprint, tracing
from benchmarks.report import Report, Row, say
from deepfreeze.format.tensors import REPLICATED, TensorSpec
from deepfreeze.freeze import regions as regions_of
from deepfreeze.plan.placement import UNIT, in_file_order, pages, per_layer

_SHARE = 0.5  # of the free memory and disk that a series may take
_MB = 1_000_000


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    nbytes: tuple[int, ...] = tuple(n * _MB for n in (10, 30, 100, 300, 1000, 4000))
    tensors: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000, 10_000)
    tensor_bytes: int = 100 * _MB
    workload: str = "nt3"  # what the ranks save
    ranks: tuple[int, ...] = (1, 2, 4, 8)
    traced: int = 2  # checkpoints over which operations are counted
    planned: tuple[int, ...] = (1, 4, 16, 64, 256, 1024)
    depths: tuple[int, ...] = (1, 2, 3, 4)
    burst: int = 10  # more than in flight and slots hold together
    burst_bytes: int = 60 * _MB
    writers: tuple[int, ...] = (1, 2, 4, 8)
    chunks: tuple[int, ...] = tuple(256 * 1024 << n for n in (0, 2, 4, 6))
    fixed_bytes: int = 200 * _MB  # while writers and chunks vary


QUICK = Sizes(
    nbytes=(_MB, 4 * _MB, 16 * _MB),
    tensors=(10, 100, 1000),
    tensor_bytes=8 * _MB,
    workload="resnet50",
    ranks=(1, 2, 4),
    traced=1,
    planned=(1, 8, 64),
    depths=(1, 2),
    burst=5,
    burst_bytes=8 * _MB,
    writers=(1, 2),
    chunks=(256 * 1024, 1 << 20, 4 << 20),
    fixed_bytes=8 * _MB,
)


@dataclass(frozen=True)
class Bench:
    """What every series needs: where its rows go, how much to measure, and where."""

    report: Report
    sizes: Sizes
    samples: int
    disk: Path
    local: Path


def one(nbytes: int, pieces: int = 1) -> list[Regions]:
    """The shards of one rank: ``nbytes`` in equal pieces."""
    cuts = [nbytes * n // pieces for n in range(pieces + 1)]
    return [[(stop - start, start) for start, stop in itertools.pairwise(cuts)]]


def specs(workload: str) -> list[TensorSpec]:
    """A model's weights, as placement wants them."""
    return [TensorSpec(name, dtype, shape, REPLICATED) for name, shape, dtype in workloads.tensors(workload)]


def placed(tensors: list[TensorSpec], world: int) -> list[Regions]:
    """The shards of each rank, with the padding behind them, in a file that holds one tensor behind the other."""
    starts, end = {}, 0
    for number in in_file_order(tensors):
        starts[number] = end
        file_size = end + tensors[number].nbytes
        end += pages(tensors[number].nbytes) * UNIT
    found = []
    for shards in per_layer(tensors, world):
        rows = sorted((starts[shard.tensor] + shard.start, shard.nbytes) for shard in shards)
        offsets, sizes = np.array(rows, np.int64).reshape(-1, 2).T
        regions = regions_of.Regions.of_pieces(np.arange(len(rows)), sizes, offsets).whole_pages(b"", file_size)
        found.append(list(zip(regions.nbytes.tolist(), regions.file_offset.tolist(), strict=True)))
    return found


def room(*folders: Path) -> int:
    """Bytes that a series may take of the memory and of each of these file systems."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = [int(fields["MemAvailable"].split()[0]) * 1024, *(shutil.disk_usage(folder).free for folder in folders)]
    return int(_SHARE * min(free))


def affordable(bench: Bench, series: str, wanted: Sequence[int], need: Callable[[Sequence[int]], int]) -> list[int]:
    """As many of the values as the machine has room for; the report says which were left out."""
    most = room(bench.disk, bench.local)
    kept = list(wanted)
    while kept and need(kept) > most:
        kept.pop()
    if left := list(wanted[len(kept) :]):
        say(
            f"    {series} without {', '.join(map(str, left))}: only {most / 1e9:.1f} GB of memory and disk may be taken"
        )
        bench.report.settings.setdefault("left out", {})[series] = left
    if not kept:
        raise SystemExit(f"scaling: {series}: too little memory or disk is free")
    return kept


def saves(bench: Bench, series: str, jobs: dict[int, Job]) -> dict[int, Row]:
    """Checkpoints one at a time, all jobs in turn, and a row for each job."""
    found = _in_turn(bench, jobs, Job.save)
    return {x: _times(bench.report.row(series=series, x=x), saved) for x, saved in found.items()}


def bursts(bench: Bench, series: str, jobs: dict[int, Job]) -> None:
    """Checkpoints back to back, all jobs in turn, and a row for each job."""

    def burst(job: Job) -> Burst:
        return job.burst(bench.sizes.burst)

    for x, found in _in_turn(bench, jobs, burst).items():
        row = bench.report.row(series=series, x=x)
        row.add("throughput", "GB/s", [one.throughput for one in found])
        row.add("blocked", "s", [one.blocked for one in found])
        row.add("cpu", "s/GB", [one.cpu_per_gb for one in found])


def _in_turn(bench: Bench, jobs: dict[int, Job], measure: Callable) -> dict[int, list]:
    for job in jobs.values():
        measure(job)  # makes the slots and touches the file system's pages; not counted
    found: dict[int, list] = {x: [] for x in jobs}
    for _ in range(bench.samples):
        for x, job in jobs.items():
            found[x].append(measure(job))
    return found


def _times(row: Row, saved: list[Saved]) -> Row:
    row.add("submit", "s", [max(one.submit) for one in saved])
    row.add("local", "s", [seconds for one in saved for seconds in one.on_local])
    row.add("written", "s", [max(one.written) for one in saved])
    row.add("committed", "s", [one.committed for one in saved])
    row.add("cpu", "s/GB", [one.cpu_per_gb for one in saved])
    row.add("calls", "1", [sum(one.calls) for one in saved])
    return row.add("bytes", "B", saved[0].nbytes)  # of each rank


@contextmanager
def _one_rank(bench: Bench, settings: dict[int, tuple[list[Regions], dict]]) -> Iterator[dict[int, Job]]:
    """A job on one rank for each x: its shards and its engine's options."""
    with Ranks(1, max(footprint(shards[0]) for shards, _ in settings.values())) as ranks:
        yield {
            x: ranks.open(shards, bench.disk, bench.local, **{"slots": 1, **options})
            for x, (shards, options) in settings.items()
        }


def by_bytes(bench: Bench) -> None:
    """One rank, one region of growing size."""
    # In memory: the source and a slot for each size. On disk: a checkpoint of each size, and the largest one twice.
    sizes = affordable(bench, "bytes", bench.sizes.nbytes, lambda kept: max(kept) + sum(kept))
    with _one_rank(bench, {n: (one(n), {}) for n in sizes}) as jobs:
        saves(bench, "bytes", jobs)


def by_tensors(bench: Bench) -> None:
    """One rank, a fixed number of bytes in more and more regions."""
    settings = {n: (one(bench.sizes.tensor_bytes, n), {}) for n in bench.sizes.tensors}
    with _one_rank(bench, settings) as jobs:
        saves(bench, "tensors", jobs)


def by_ranks(bench: Bench) -> None:
    """A model's weights over more and more ranks, each its share; then the same again to count metadata operations."""
    tensors = specs(bench.sizes.workload)
    nbytes = sum(spec.nbytes for spec in tensors)
    # Each world has its source and its slots.
    worlds = affordable(bench, "ranks", bench.sizes.ranks, lambda kept: 2 * nbytes * len(kept))
    shards = {world: placed(tensors, world) for world in worlds}
    memory = {world: max(map(footprint, regions)) for world, regions in shards.items()}
    with ExitStack() as stack:
        jobs = {}
        for world, regions in shards.items():
            ranks = stack.enter_context(Ranks(world, memory[world]))
            jobs[world] = ranks.open(regions, bench.disk, bench.local, slots=1)
        saves(bench, "ranks", jobs)
    if why := tracing():
        say(f"    metadata operations are not counted: {why}")
        bench.report.settings["operations"] = f"not counted: {why}"
        return
    for world, regions in shards.items():
        with Ranks(world, memory[world], traced=True) as ranks:
            job = ranks.open(regions, bench.disk, bench.local, slots=1)
            job.save()
            _operations(bench, world, [job.operations(1) for _ in range(bench.sizes.traced)])
            job.close()


def _operations(bench: Bench, world: int, checkpoints: list[list]) -> None:
    """Rank 0, which commits, apart from the others: one sample for each checkpoint, of the others their mean."""
    parts = {"rank 0": slice(0, 1), "others": slice(1, None)} if world > 1 else {"rank 0": slice(0, 1)}
    for who, part in parts.items():
        row = bench.report.row(series="operations", x=world, who=who)
        for kind in OPERATIONS:
            row.add(kind, "1", [statistics.mean(rank[kind] for rank in counts[part]) for counts in checkpoints])
        row.add("all", "1", [statistics.mean(rank.total() for rank in counts[part]) for counts in checkpoints])


def by_plan(bench: Bench) -> None:
    """The placement plan alone, which every rank computes in full; no engine, no I/O."""
    tensors = specs("resnet50")
    took: dict[int, list[float]] = {world: [] for world in bench.sizes.planned}
    loads: dict[int, list[int]] = {}
    for _ in range(bench.samples):
        for world in bench.sizes.planned:
            begun = time.perf_counter()
            plan = per_layer(tensors, world)
            took[world].append(time.perf_counter() - begun)
            loads[world] = [sum(shard.nbytes for shard in shards) for shards in plan]
    for world, seconds in took.items():
        row = bench.report.row(series="plan", x=world).add("plan", "s", seconds)
        row.add("bytes", "B", [min(loads[world]), max(loads[world])])


def by_in_flight(bench: Bench) -> None:
    """More checkpoints held in memory, two slots."""
    shards = one(bench.sizes.burst_bytes)
    with _one_rank(bench, {n: (shards, {"in_flight": n, "slots": 2}) for n in bench.sizes.depths}) as jobs:
        bursts(bench, "in flight", jobs)


def by_slots(bench: Bench) -> None:
    """A longer backlog on the local tier, two checkpoints in memory."""
    shards = one(bench.sizes.burst_bytes)
    with _one_rank(bench, {n: (shards, {"in_flight": 2, "slots": n}) for n in bench.sizes.depths}) as jobs:
        bursts(bench, "slots", jobs)


def by_writers(bench: Bench) -> None:
    """More threads that copy and checksum."""
    shards = one(bench.sizes.fixed_bytes)
    with _one_rank(bench, {n: (shards, {"writers": n}) for n in bench.sizes.writers}) as jobs:
        saves(bench, "writers", jobs)


def by_chunk(bench: Bench) -> None:
    """Larger pieces handed to the writers."""
    shards = one(bench.sizes.fixed_bytes)
    with _one_rank(bench, {n: (shards, {"chunk_bytes": n}) for n in bench.sizes.chunks}) as jobs:
        saves(bench, "chunk", jobs)


SERIES: dict[str, Callable[[Bench], None]] = {
    "bytes": by_bytes,
    "tensors": by_tensors,
    "ranks": by_ranks,
    "plan": by_plan,
    "in flight": by_in_flight,
    "slots": by_slots,
    "writers": by_writers,
    "chunk": by_chunk,
}
