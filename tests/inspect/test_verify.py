"""Verify covers every byte of every file."""

import os
import random
import shutil

import pytest

from deepfreeze.errors import NotFoundError
from deepfreeze.inspect.verify import verify
from tests.support import files


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path)


@pytest.mark.parametrize("state", ["full", "weights"])
def test_a_whole_checkpoint_verifies(run, state):
    files.write_checkpoint(run, 40, files.sample(world=3, state=state))
    seen = []
    report = verify(run, progress=lambda done, total: seen.append((done, total)))
    assert report.ok, report.problems
    assert (report.step, report.files) == (40, 3 + 1 + 1 + 1)
    on_disk = sum(f.stat().st_size for d in ("step-0000000040", "structures") for f in (run / d).iterdir())
    assert report.nbytes == on_disk
    assert seen[0] == (0, 20000) and seen[-1] == (20000, 20000)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_whole_checkpoint_of_version_2_verifies_with_what_a_crash_left(run):
    """A rank that dies right after the commit leaves its own record beside the gathered ones."""
    folder, made = files.write_checkpoint(run, 40, files.sample(world=3, version=2))
    report = verify(run)
    assert report.ok and report.files == 1 + 1 + 1 + 1
    on_disk = sum(f.stat().st_size for d in ("step-0000000040", "structures") for f in (run / d).iterdir())
    assert report.nbytes == on_disk
    (folder / "rank-00001.record").write_bytes(files.rank_record(40, made, 1)[:-1])
    assert verify(run) == report


def test_gathered_records_that_are_gone_are_one_problem(run):
    folder, _ = files.write_checkpoint(run, 40, files.sample(world=3, version=2))
    (folder / "records").unlink()
    problems = verify(run).problems
    assert [(p.file, p.part) for p in problems if p.file != files.MODEL_FILE] == [("records", "what all ranks wrote")]


@pytest.mark.parametrize("version", [1, 2])
def test_any_changed_byte_of_any_file_is_found(run, version):
    folder, made = files.write_checkpoint(run, 40, files.sample(version=version))
    rng = random.Random(7)
    for file in [*folder.iterdir(), run / "structures" / f"{made.hash}.json"]:
        size = file.stat().st_size
        for at in [0, size - 1, *(rng.randrange(size) for _ in range(25))]:
            files.flip(file, at, 1 << rng.randrange(8))
            report = verify(run, 40)
            assert not report.ok, (file, at)
            assert any(problem.file == file.name for problem in report.problems), (file, at)
            shutil.rmtree(folder)
            files.write_checkpoint(run, 40, made)
    assert verify(run, 40).ok


def test_a_problem_names_file_region_expected_and_found(run):
    folder, _ = files.write_checkpoint(run, 40, files.sample(extent=1000))
    files.flip(folder / files.MODEL_FILE, 12210)
    files.flip(folder / files.MODEL_FILE, 100)
    first, second = verify(run).problems
    assert first.part == "bytes 0 to 1000 (HDF5's own metadata)"
    assert second.part == "bytes 12000 to 13000 (dense/kernel, dense/bias, bn/mean)"
    assert second.file == files.MODEL_FILE
    assert second.expected.startswith("CRC32C ") and len(second.found) == 8


def test_missing_truncated_and_foreign_files_are_found(run):
    def truncate(path):
        os.truncate(path, path.stat().st_size - 1)

    def put(path):
        path.write_text("x")

    cases = [
        (files.MODEL_FILE, os.unlink), (files.MODEL_FILE, truncate), ("manifest.json", truncate),
        ("manifest.json", os.unlink), ("rank-00000.record", os.unlink), ("rank-00001.record", truncate),
        ("rank-00002.record", put), ("rank-00001.record.tmp", put), ("core.4711", put),
    ]  # fmt: skip
    for step, (name, damage) in enumerate(cases):
        folder, _ = files.write_checkpoint(run, step)
        damage(folder / name)
        report = verify(run, step)
        assert name in {problem.file for problem in report.problems}, (name, report.problems)


def test_bytes_that_no_record_or_two_records_have_are_found(run):
    made = files.sample(extent=1000)
    made.extents[1][0] = (2000, 1000)
    files.write_checkpoint(run, 40, made)
    found = {(p.part, p.found) for p in verify(run).problems if "record" in p.expected}
    assert ("bytes 1000 to 2000 (HDF5's own metadata)", "no record has them") in found
    assert ("bytes 2000 to 3000 (HDF5's own metadata)", "two records have them") in found


@pytest.mark.parametrize("damaged", [0, 2])
def test_a_damaged_record_among_gathered_ones_is_named_by_its_rank(run, damaged):
    folder, made = files.write_checkpoint(run, 40, files.sample(world=3, version=2))
    files.flip(folder / "records", len(files.rank_record(40, made, 0)) * damaged + 150)
    first = verify(run).problems[0]
    assert (first.file, first.part) == ("records", f"what rank {damaged} wrote") and "CRC32C" in first.expected


def test_records_of_another_attempt_are_found(run):
    made = files.sample()
    folder, _ = files.write_checkpoint(run, 40, made)
    (folder / "rank-00001.record").write_bytes(files.rank_record(40, made, 1, attempt="f" * 32))
    assert verify(run).problems[0].file == "rank-00001.record"


def test_a_checkpoint_that_is_not_there_is_not_found(run):
    with pytest.raises(NotFoundError):
        verify(run)
    files.write_checkpoint(run, 40)
    with pytest.raises(NotFoundError, match="40"):
        verify(run, 41)
