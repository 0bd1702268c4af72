"""The native engine and the Python reader agree on every byte: each reads what docs/format.md and the other one wrote."""

import numpy as np
import pytest

import veloc_bindings
from deepfreeze.inspect.verify import verify
from deepfreeze.notices import unheard
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.thaw.read import read
from deepfreeze.tiers import leftovers, rescue
from deepfreeze.tiers.local_tier import LocalTier
from tests.support import files
from tests.support.private import read_private


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path / "run")


def write_slot(folder, step, made, rank):
    extents = [(at, made.content[at : at + n]) for at, n in made.extents[rank]]
    ident = files.identity(
        structure=made.hash, step=step, rank=rank, world=len(made.extents), file_size=len(made.content),
        extents=len(extents),
    )  # fmt: skip
    path = folder / f"rank-{rank:05d}-0.slot"
    path.write_bytes(files.slot(ident, extents, made.seeds[rank].tobytes(), made.named))


def recover_all(run, folder):
    opened = WritableRun.open(run)
    found = leftovers.leftover_slots(folder, unheard)
    plan = rescue.plan(opened, [("n0", slot) for slot in found])
    rescue.copy_slots(plan, "n0", run, {slot.path: LocalTier(folder, None) for slot in found})
    return rescue.finish(plan, opened, unheard)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("recorded", [[], [0], [0, 2], [0, 1, 2]])
def test_a_dead_attempts_slots_and_records_become_a_checkpoint(run, tmp_path, recorded, version):
    """Of either version; names of values that nobody knows are kept in records and slots."""
    made = files.sample(world=3, version=version)
    files.write_structure(run, made)
    if recorded:
        files.write_partial(run, 40, made, recorded)
    for rank in set(range(3)) - set(recorded):
        write_slot(tmp_path, 40, made, rank)
    done = recover_all(run, tmp_path)
    assert done.committed == [(40, files.ATTEMPT)]
    assert verify(run, 40).problems == ()
    with read(run) as tensors:
        assert all(np.array_equal(tensors[name], value) for name, value in made.values.items())
    assert [read_private(run, 40, rank)["seed"].tolist() for rank in range(3)] == [s.tolist() for s in made.seeds]
    folder = run / "step-0000000040"
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", files.MODEL_FILE, "records"]
    made.named = made.named or b""
    assert (folder / "records").read_bytes() == b"".join(files.rank_record(40, made, rank) for rank in range(3))


ALIKE, APART, UNKNOWN = [[7, 8], [7, 8]], [[7, 8], [7, 9]], [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("before", "hashes", "kept"),
    [(0, ALIKE, True), (0, UNKNOWN, True), (1, ALIKE, True), (0, APART, False), (1, UNKNOWN, False)],
)
def test_a_start_does_not_finish_a_checkpoint_whose_ranks_differ(run, tmp_path, before, hashes, kept):
    """Or that was not compared after one of the same attempt whose ranks did. It may have been refused, and is a mixture."""
    made = files.sample()
    files.write_checkpoint(run, 30, made, diverged=before)
    made.hashes = hashes
    files.write_partial(run, 40, made)
    done = recover_all(run, tmp_path)
    assert WritableRun.open(run).committed() == ([30, 40] if kept else [30]) and WritableRun.open(run).partials() == []
    assert [step for step, _, _ in done.lost] == ([] if kept else [40])
    assert kept or "differ" in done.lost[0][2]


def test_one_that_was_not_compared_goes_by_the_unfinished_one_before_it(run, tmp_path):
    for at, hashes in ((10, UNKNOWN), (20, APART), (30, UNKNOWN), (40, ALIKE), (50, UNKNOWN)):
        made = files.sample()
        made.hashes = hashes
        files.write_structure(run, made)
        files.write_partial(run, at, made)
    done = recover_all(run, tmp_path)
    assert [step for step, _ in done.committed] == [10, 40, 50] and [step for step, *_ in done.lost] == [20, 30]
    assert all(WritableRun.open(run).manifest(step).diverged == 0 for step in (10, 40, 50))


def test_records_of_some_ranks_say_nothing_of_the_others(run, tmp_path):
    made = files.sample()
    files.write_checkpoint(run, 10, made, diverged=1)
    made.hashes = ALIKE
    files.write_partial(run, 15, made, [0])
    made.hashes = UNKNOWN
    files.write_partial(run, 20, made)
    done = recover_all(run, tmp_path)
    assert WritableRun.open(run).committed() == [10] and 20 in [step for step, *_ in done.lost]


def test_what_another_attempts_ranks_differed_in_does_not_count(run, tmp_path):
    made = files.sample()
    files.write_checkpoint(run, 30, made, "ab" * 16, diverged=1)
    made.hashes = UNKNOWN
    files.write_partial(run, 40, made)
    recover_all(run, tmp_path)
    assert [WritableRun.open(run).manifest(step).diverged for step in (30, 40)] == [1, 0]


def test_a_damaged_slot_is_lost_and_cleared(run, tmp_path):
    made = files.sample()
    files.write_structure(run, made)
    files.write_partial(run, 40, made, [0])
    write_slot(tmp_path, 40, made, 1)
    files.flip(tmp_path / "rank-00001-0.slot", -1)
    done = recover_all(run, tmp_path)
    assert [step for step, _, _ in done.lost] == [40]
    assert (WritableRun.open(run).partials(), WritableRun.open(run).committed()) == ([], [])


def test_what_the_engine_writes_is_what_the_format_document_says(run):
    made = files.sample(world=1, extent=8192, version=2)
    files.write_structure(run, made)
    content = np.frombuffer(made.content, np.uint8)
    with veloc_bindings.EmbeddedEngine.open(
        rank=0, world=1, in_flight=1, slots=1, writers=1, chunk_bytes=8192, file_size=len(content),
        commit_timeout=30, run_id=bytes.fromhex(files.RUN_ID), attempt=bytes.fromhex(files.ATTEMPT),
        structure=bytes.fromhex(made.hash), run_dir=str(run), local_dir=None,
    ) as engine:  # fmt: skip
        engine.submit(40, [(content, len(content), 0)], made.seeds[0].tobytes(), 30, files.UNKNOWN)
        engine.drain(30)
    assert verify(run, 40).problems == ()
    with read(run) as tensors:
        assert all(np.array_equal(tensors[name], value) for name, value in made.values.items())
    assert (run / "step-0000000040" / "records").read_bytes() == files.rank_record(40, made, 0)
    # A rank removes its own record when it has seen the commit.
    found = sorted(path.name for path in (run / "step-0000000040").iterdir())
    assert found == ["manifest.json", files.MODEL_FILE, "records"]
