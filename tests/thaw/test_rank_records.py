"""The records of a checkpoint are one file: what is done with a checkpoint opens as few files for 64 ranks as for one."""

from __future__ import annotations

import os
import shutil

import pytest

from deepfreeze.errors import CorruptError
from deepfreeze.inspect.diff import diff
from deepfreeze.inspect.verify import verify
from deepfreeze.inspect.writers import ShardTable
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.thaw.rank_records import read_records
from deepfreeze.thaw.read import read
from tests.support import files
from tests.support.private import read_private

USES = {
    "verify": lambda run: verify(run, 40).problems,
    "read": lambda run: read(run, 40).close(),
    "read_private": lambda run: read_private(run, 40, 1),
    "writers": lambda run: ShardTable(Run.open(run), 40),
    "diff": lambda run: diff((run, 20), (run, 40)),
    "remove": lambda run: _remove(run),
}


def _remove(run):
    opened = WritableRun.open(run)
    return opened.discard(opened.step_file(40), 40)


@pytest.mark.parametrize("use", USES)
def test_as_few_files_are_opened_and_removed_for_64_ranks_as_for_two(tmp_path, monkeypatch, use):
    counts = []
    for world in (2, 64):
        run = files.write_run(tmp_path / f"run-{world}")
        made = files.sample(world=world, extent=100, version=2)
        for step in (20, 40):
            files.write_checkpoint(run, step, made)
        calls = []
        with monkeypatch.context() as patch:
            for name in ("open", "unlink", "rmdir"):
                really = getattr(os, name)
                patch.setattr(
                    os, name, lambda *a, really=really, calls=calls, **k: calls.append(a[0]) or really(*a, **k)
                )
            assert not (USES[use](run) and use == "verify")
        counts.append(len(calls))
    assert counts[0] == counts[1] <= 24, counts


def test_each_rank_s_record_is_its_own_and_any_of_them_can_be_read(tmp_path):
    run = Run.open(files.write_run(tmp_path))
    made = files.sample(world=5, version=2)
    made.named = [files.section(position=bytes([rank]) * rank) for rank in range(5)]
    files.write_checkpoint(run.path, 40, made)
    manifest = run.manifest(40)
    for ranks in ([3], [4, 0], [], range(5)):
        found = read_records(run, manifest, ranks)
        assert [record.identity.rank for record in found] == list(ranks)
        assert [record.values["position"] for record in found] == [bytes([rank]) * rank for rank in ranks]
        assert [record.private for record in found] == [made.private(rank) for rank in ranks]


@pytest.mark.parametrize("change", ["longer", "shorter", "swapped", "of another step"])
def test_a_file_of_records_that_is_not_this_checkpoints_is_refused(tmp_path, change):
    run = Run.open(files.write_run(tmp_path))
    made = files.sample(world=2, version=2, extent=20000)
    made.extents = [[(0, 10000)], [(10000, 10000)]]
    for step in (20, 40):
        folder, _ = files.write_checkpoint(run.path, step, made)
    file = folder / "records"
    data = file.read_bytes()
    half = len(data) // 2
    if change == "of another step":
        shutil.copy(run.step_path(20) / "records", file)
    else:
        file.write_bytes({"longer": data + b"\0", "shorter": data[:-1], "swapped": data[half:] + data[:half]}[change])
    with pytest.raises(CorruptError) as caught:
        read_records(run, run.manifest(40))
    assert caught.value.where == str(file)
