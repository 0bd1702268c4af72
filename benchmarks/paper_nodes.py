"""The paper's trend: the blocking phase of its four approaches on 1, 2, 4 and 8 nodes, which is where slices in the graph win.

Each node is a rank process without TensorFlow that holds the shards of its rank. The blocking phase asks nothing of other nodes, so
the nodes take turns here: each has the cores and the disk to itself, as it would have its own. The slowest of them counts,
because all others wait for it in the next step.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import jobs
from benchmarks.paper_published import NODES, OURS
from benchmarks.paper_tables import SLOWEST
from benchmarks.ranks import Ranks, Regions, footprint
from benchmarks.report import Report, say
from benchmarks.scaling_series import placed, specs
from deepfreeze.plan.placement import per_layer

APPROACHES = ("keras-default", "veloc-single", "veloc-sharded", OURS, "captured")
SHARD, WHOLE = 0, 1  # jobs: each rank's shard; all tensors, on rank 0


def measure(report: Report, workload: str, samples: int, disk: Path, nodes: tuple[int, ...] = NODES) -> None:
    """A row for each approach and number of nodes; a first round, which finds everything untouched, doesn't count."""
    for world in nodes:
        say(f"{workload} on {world} node{'s' * (world > 1)} ...")
        with _Nodes(workload, world, jobs.empty(disk, "nodes")).started() as started:
            rounds = [started.round() for _ in range(samples + 1)][1:]
        for approach in APPROACHES:
            row = report.row(workload=workload, nodes=world, approach=approach)
            row.add("blocking", "s", [sum(each[approach]) / world for each in rounds])
            row.add(SLOWEST, "s", [max(each[approach]) for each in rounds])


class _Nodes:
    """All nodes of one number, each with its engines. Every node's engine saves a run of its own, because nothing waits for another
    node's shard before the blocking phase is over."""

    def __init__(self, workload: str, world: int, folder: Path) -> None:
        tensors = specs(workload)
        self._sizes = [tensor.nbytes for tensor in tensors]
        self._shards, (self._whole,) = placed(tensors, world), placed(tensors, 1)
        # Outside the graph a rank gets a tensor as a whole, however little of it is its own.
        self._fetched = [
            [self._sizes[number] for number in sorted({shard.tensor for shard in shards})]
            for shards in per_layer(tensors, world)
        ]
        self._world, self._folder, self._step = world, folder, 0

    @contextmanager
    def started(self) -> Iterator[_Nodes]:
        """With the processes, and the engines on them."""
        with Ranks(self._world, footprint(self._whole), program="paper_node") as self._ranks:
            self._ranks.each("open", [self._open(SHARD, rank, regions) for rank, regions in enumerate(self._shards)])
            self._ranks.each("open", self._on_first(self._open(WHOLE, self._world, self._whole)))
            yield self

    def round(self) -> dict[str, list[float]]:
        """Takes one checkpoint by each approach, on one node after the other. Returns, by approach, the seconds that each node took."""
        self._step += 1
        step = {"step": self._step}
        hdf5 = self._ranks.each(
            "hdf5", self._on_first({"path": str(self._folder / "weights.h5"), "tensors": self._sizes})
        )
        single = self._ranks.each("blocking", self._on_first({"job": WHOLE, **step, "fetched": self._sizes}))
        sharded = self._ranks.each("blocking", [{"job": SHARD, **step, "fetched": sizes} for sizes in self._fetched])
        self._step += 1
        ours = self._ranks.each("blocking", [{"job": SHARD, "step": self._step, "fetched": []}] * self._world)
        found = dict(zip(APPROACHES, (hdf5, single, sharded, ours), strict=False))
        seconds = {approach: [one["blocking"] for one in answers] for approach, answers in found.items()}
        return {**seconds, "captured": [one["captured"] for one in ours]}

    def _open(self, job: int, place: int, regions: Regions) -> dict:
        """An engine that is alone with its run and its local tier."""
        folders = {name: str(jobs.empty(self._folder, f"{name[:-4]}-{place}")) for name in ("run_dir", "local_dir")}
        sizes = [nbytes for nbytes, _ in regions]
        *offsets, end = itertools.accumulate(sizes, initial=0)
        options = {**folders, "run_id": os.urandom(16).hex(), "file_size": end, "rank": 0, "world": 1}
        return {"job": job, "regions": list(zip(sizes, offsets, strict=True)), "options": options}

    def _on_first(self, arguments: dict) -> list[dict | None]:
        return [arguments, *[None] * (self._world - 1)]
