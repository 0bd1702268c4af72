"""Sparse files: as long as their writer likes, and without a block on the disk. A reader of one takes memory for the wanted tensors, and
some more that does not grow with the file.

Each test reads in a process that can take so much more memory for data than it has, and no more (RLIMIT_DATA).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import google_crc32c
import numpy as np
import pytest

import deepfreeze
from tests.support import files, kerases, processes
from tests.support.data_limit import data_limit

ROOT = Path(__file__).resolve().parents[2]
GAP = 160 << 20  # bytes of a model file that are no tensor's
ROOM = 64 << 20  # bytes that a reader may take beyond what the process has when it begins: threads have stacks of 8 MiB
OTHERS = 12 << 20  # bytes of a value that no reader knows, in the record of each rank
RANKS = 8

# Imports all that the reader needs, and lowers the limit.
LIMITED = """
import sys
import numpy as np
import deepfreeze
from deepfreeze.cli.main import main
from deepfreeze.frameworks.memory import numpy_room
from deepfreeze.inspect.rank_states import saved_states
from deepfreeze.inspect.verify import verify
from deepfreeze.store.run import Run
from deepfreeze.thaw.read import TensorReader
from tests.support.data_limit import data_limit

run, room = sys.argv[1], int(sys.argv[2])
limit = data_limit(room)
limit.__enter__()
try:
    np.empty(room + (16 << 20), np.uint8)
    sys.exit("there is no limit")
except MemoryError:
    pass
"""


def limited(code, run, room=ROOM):
    """What the code prints, run behind ``LIMITED``."""
    command = [sys.executable, "-c", LIMITED + code, run, room]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = processes.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def crc_of_zeros(nbytes, crc=0):
    """Of so many zeros behind bytes that have the checksum ``crc``."""
    zeros = bytes(4 << 20)
    while nbytes:
        part = min(nbytes, len(zeros))
        crc = google_crc32c.extend(crc, zeros[:part])
        nbytes -= part
    return crc


def write_with_gap(run, cut, tensor=False):
    """A checkpoint of one rank, of version 2. Behind its tensors its model file has ``GAP`` bytes without a block. ``cut``: whether the gap
    begins with an extent of its own; ``tensor``: whether a tensor has these bytes."""
    made = files.sample(1, version=2)
    size = len(made.content) + GAP
    structure = json.loads(made.structure) | {"file_size": size}
    if tensor:
        own = {"dtype": "int8", "nbytes": GAP, "offset": 20000, "role": "replicated", "shape": [GAP]}
        structure["tensors"].insert(-1, {**own, "name": "huge", "path": "layers/huge"})
    made.structure = json.dumps(structure, sort_keys=True, separators=(",", ":")).encode()
    files.write_structure(run, made)
    crc = files.crc(made.content)
    extents = [(0, size, crc_of_zeros(GAP, crc))]
    if cut:
        extents = [(0, 20000, crc), (20000, GAP, crc_of_zeros(GAP))]
    ident = files.identity(structure=made.hash, step=40, rank=0, world=1, file_size=size, extents=len(extents))
    record = files.record(ident, extents, made.private(0), made.section(0))
    folder = run / "step-0000000040"
    folder.mkdir()
    (folder / files.MODEL_FILE).write_bytes(made.content)
    os.truncate(folder / files.MODEL_FILE, size)
    (folder / "records").write_bytes(record)
    entry = {
        "rank": 0, "bytes": size, "extents": len(extents), "private": len(made.private(0)), "values": len(made.section(0)),
        "size": len(record), "crc32c": f"{int.from_bytes(record[-4:], 'little'):08x}",
    }  # fmt: skip
    text = files.manifest(structure=made.hash, file_size=size, records=[entry], step=40, values="{}")
    (folder / "manifest.json").write_bytes(text)
    return made


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("cut", [True, False], ids=["own-extent", "shared-extent"])
def test_what_lies_between_tensors_is_checked_and_not_kept(run, cut):
    """As a restore reads: all tensors, and HDF5's own bytes between them."""
    made = write_with_gap(run, cut)
    code = """
with TensorReader(Run.open(run), 40) as reader:
    wanted = [(placed, numpy_room(placed.spec)) for placed in reader.structure.tensors if placed.nbytes]
    with reader.start(wanted, past_cache=False, between=True) as reading:
        reading.finish()
    values = {placed.spec.name: room.value.tobytes().hex() for placed, room in wanted}
    print(values["bn/mean"], verify(run).ok)
    with open(reader.path, "r+b") as file:
        file.seek(-1000, 2)
        file.write(b"damage")
    try:
        with reader.start([], past_cache=True, between=True) as reading:
            reading.finish()
    except deepfreeze.CorruptError as error:
        print(error.expected)
"""
    values, damage = limited(code, run).stdout.splitlines()
    assert values == f"{made.values['bn/mean'].tobytes().hex()} True" and "for HDF5's own bytes" in damage


@pytest.mark.tensorflow
@kerases.one_api_will_do
def test_a_restore_takes_no_memory_for_a_tensor_that_the_model_has_not(run, api):
    write_with_gap(run, cut=True, tensor=True)
    model = api.Sequential([api.Input((4,)), api.layers.Dense(2)])
    model.compile("sgd", "mse")
    before = [value.copy() for value in model.get_weights()]
    with data_limit(ROOM), pytest.raises(deepfreeze.StructureError, match="only the checkpoint has layers/huge"):
        deepfreeze.restore(model, run, 40)
    assert all(np.array_equal(one, other) for one, other in zip(before, model.get_weights(), strict=True))


@pytest.mark.full
def test_records_are_read_one_by_one(run):
    """Each has a value of zeros that nobody wants. All of them together are more than the process may take."""
    made = files.sample(RANKS, version=2)
    made.named = files.section(zeros=bytes(OTHERS))
    files.write_checkpoint(run, 40, made)
    code = """
print(verify(run).ok, len(saved_states(run, 40)), sorted(deepfreeze.read(run, 40)))
"""
    assert RANKS * OTHERS > ROOM
    assert limited(code, run).stdout == f"True {RANKS} {sorted(made.values)}\n"


@pytest.mark.slow
def test_a_line_of_a_file_of_events_that_has_no_end_is_skipped(run):
    (run / "events").mkdir()
    file = run / "events" / f"{files.ATTEMPT}.jsonl"
    event = {"v": 1, "t": 5, "m": 1.0, "kind": "end", "finished": True, "step": 7}
    (run / "owner").write_text(files.ATTEMPT + "\n")
    with open(file, "wb") as out:
        out.write(json.dumps(event).encode() + b"\n")
        out.truncate(GAP)
        out.seek(GAP)
        out.write(b"\n" + json.dumps({**event, "step": 8}).encode() + b"\n")
        out.truncate(2 * GAP)
    code = """
codes = [main(["log", run]), main(["log", run, "--ended"]), main(["show", run, "--engine"])]
print(codes)
"""
    done = limited(code, run)
    *events, ended, _, codes = done.stdout.splitlines()
    assert len(events) == 2 and "step 7" in events[0] and "step 8" in events[1]
    assert "; the newest attempt" in ended and codes == "[0, 0, 1]"
    assert "skipped 2 lines of more than 1 MiB" in done.stderr
