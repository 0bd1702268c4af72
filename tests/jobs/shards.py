"""A rank without TensorFlow: shards.py write|read RUN RANK WORLD. Writes its shards of known tensors, or reads them all back."""

import sys

import numpy as np

import deepfreeze
from deepfreeze.engine.backend import Opening
from deepfreeze.engine.backends.embedded.backend import KIND
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.engine.target import Target
from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec
from deepfreeze.freeze.regions import Regions
from deepfreeze.notices import unheard
from deepfreeze.plan.placement import UNIT, in_file_order, pages, per_layer
from deepfreeze.store.run import Run
from tests.support.private import read_private

STEP, ATTEMPT, HEAD = 7, "ab" * 16, 4096  # HEAD: bytes of the file before the first tensor
SPECS = [
    TensorSpec("kernel", "float32", (513, 211), REPLICATED),
    TensorSpec("embedding", "float16", (70_001, 3), REPLICATED),
    TensorSpec("bias", "float32", (211,), REPLICATED),
    TensorSpec("iterations", "int64", (), REPLICATED),
    TensorSpec("moving_mean", "float32", (40_000,), RANK_LOCAL),
    TensorSpec("seed", "int64", (2,), PER_RANK),
]


def value(spec: TensorSpec, rank: int) -> np.ndarray:
    """What rank holds; the same on all ranks for a replicated tensor."""
    rng = np.random.default_rng((len(spec.name), spec.size, 0 if spec.role == REPLICATED else rank))
    return np.frombuffer(rng.bytes(spec.nbytes), spec.dtype).reshape(spec.shape)


def structure() -> Structure:
    placed, offset = [Placed(spec, "seeds/0", 0) for spec in SPECS if spec.role == PER_RANK], HEAD
    for i in in_file_order(SPECS):
        placed.append(Placed(SPECS[i], SPECS[i].name, offset))
        offset += pages(SPECS[i].nbytes) * UNIT
    versions = {"api": "keras", "keras": "3", "tensorflow": "2"}
    return Structure(tuple(placed), placed[-1].end, versions, "full")


def write(path: str, rank: int, world: int) -> None:
    layout, run = structure(), Run.open(path)
    places = {placed.spec.name: placed.offset for placed in layout.tensors}
    arrays = [value(spec, rank) for spec in SPECS]
    shards = per_layer(SPECS, world)[rank]
    rows = [(n, one.nbytes, places[SPECS[one.tensor].name] + one.start) for n, one in enumerate(shards)]
    head = bytes(range(256)) * (HEAD // 256) if rank == 0 else b""
    regions = Regions.of_pieces(*np.array(rows, np.int64).reshape(-1, 3).T).whole_pages(head, layout.file_size)
    addresses = [arrays[one.tensor].__array_interface__["data"][0] + one.start for one in shards]
    opening = Opening(
        target=Target(path, run.run_id, ATTEMPT),
        structure=layout.digest,
        file_size=layout.file_size,
        rank=rank,
        world=world,
        timeout=60.0,
        engine=deepfreeze.Engine(chunk_bytes=65536),
    )
    engine = OpenEngine(KIND, opening, unheard)
    engine.submit(
        STEP, regions.rows(np.array(addresses, np.uint64)), value(SPECS[-1], rank).tobytes(), (arrays, regions)
    )
    assert engine.drain(60.0)
    assert [report.code for report in engine.poll()[0]][-1] == 0
    engine.close()


def read(path: str, rank: int, written_by: int) -> None:
    with deepfreeze.read(path) as tensors:
        for spec in SPECS[:-1]:
            assert tensors[spec.name].tobytes() == value(spec, 0).tobytes(), spec.name
    if rank < written_by:
        assert read_private(path, STEP, rank)["seed"].tobytes() == value(SPECS[-1], rank).tobytes()


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
