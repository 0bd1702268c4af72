"""Names: made and parsed by one module."""

import pytest

from deepfreeze.format import names
from tests.support import files

A = "0123456789abcdef0123456789abcdef"


def test_names_are_those_of_the_format_document():
    assert names.step_dir(40) == "step-0000000040"
    assert names.partial_dir(40, A) == f"step-0000000040.partial-{A}"
    assert names.abandoned_dir(40, A) == f"step-0000000040-{A}"
    assert names.damaged_dir(40, A) == f"step-0000000040-{A}"
    assert names.damaged_dir(40, None) == "step-0000000040-unknown"
    assert names.damaged_dir(40, A, 3) == f"step-0000000040-{A}.3"
    assert names.trash_dir(40, A) == f".trash-step-0000000040-{A}"
    assert names.record_file(3) == "rank-00003.record"
    assert names.local_dir(1000, A) == f"deepfreeze-1000/{A}"
    assert names.temporary("run.json") == "run.json.tmp"


@pytest.mark.parametrize("step", [0, 1, 40, 9999999999, 10**10, names.MAX_STEP])
def test_every_step_survives_the_round_trip(step):
    assert names.parse_step_dir(names.step_dir(step)) == step
    assert names.parse_partial_dir(names.partial_dir(step, A)) == (step, A)
    assert names.parse_failed_file(files.failed_file(step, A)) == (step, A)
    assert names.parse_abandoned_dir(names.abandoned_dir(step, A)) == (step, A)
    assert names.parse_trash_dir(names.trash_dir(step, A)) == (step, A)
    for number in (1, 2, 10, 999):
        for attempt in (A, None):
            assert names.parse_damaged_dir(names.damaged_dir(step, attempt, number)) == (step, attempt)


@pytest.mark.parametrize("rank", [0, 3, 99999, 100000, names.MAX_RANK])
def test_every_rank_survives_the_round_trip(rank):
    assert names.parse_record_file(names.record_file(rank)) == rank
    if rank < 10**9:
        for ranks in (range(rank, rank + 1), range(rank, rank + 8), range(rank, rank + 15, 7)):
            assert names.parse_node_record_file(names.node_record_file(ranks)) == range(rank, ranks[-1] + 1, ranks.step)
    assert names.parse_slot_file(f"rank-{rank:05d}-{A}-12.slot") == (rank, A, 12)
    assert names.parse_slot_file(f"rank-{rank:05d}-12.slot") == (rank, None, 12)


@pytest.mark.parametrize(
    "name",
    [
        "", "step-40", "step-00000000400000000000000", "step-00000000040", "step--000000040", "step-9999999999999999999",
        "step-0000000040\n", "step-0000000040 ", "step-00000000٤0", "../step-0000000040", f"step-0000000040.partial-{A}x",
        f"step-0000000040.partial-{A.upper()}", "step-0000000040.partial-", "rank-3.record", "rank-000003.record",
        "step-0000000040-known", f"step-0000000040-{A}.1", f"step-0000000040-{A}.02", "step-0000000040-unknown.", "unknown",
        "rank-00003.record.tmp", "rank-4294967296.record", "rank-00003-00.slot", "rank-00003-.slot", "rank-00003-0.slot.tmp",
        "ranks-00001-00002.record", "ranks-00001-00002-1.record.tmp", "ranks-00001-00002-0.record", "ranks-00001-00002-01.record",
        "ranks-00002-00001-1.record", "ranks-00001-00004-2.record", "ranks-1-2-1.record", "ranks-000001-00002-1.record",
        "ranks-00000-04096-1.record", "ranks-00000-999999999-1.record", "ranks-00001--0002-1.record", "ranks-00001-00002-1.recorder",
        "step-0000000040.failed-", f"step-0000000040.failed-{A}x",
        f"rank-00003-{A}.slot", f"rank-00003-{A}-00.slot", f"rank-00003-{A.upper()}-0.slot",
    ],
)  # fmt: skip
def test_foreign_names_are_left_alone(name):
    for parse in (
        names.parse_step_dir, names.parse_partial_dir, names.parse_abandoned_dir, names.parse_trash_dir,
        names.parse_record_file, names.parse_node_record_file, names.parse_slot_file, names.parse_damaged_dir, names.parse_failed_file,
    ):  # fmt: skip
        assert parse(name) is None


def test_nothing_outside_of_the_run_can_be_named():
    for attempt in ("../../etc", "", A[:-1], A + "0"):
        with pytest.raises(ValueError):
            names.partial_dir(1, attempt)
    for step in (-1, 2**63):
        with pytest.raises(ValueError):
            names.step_dir(step)
    with pytest.raises(ValueError):
        names.structure_file("../x")
