"""The ways to write a file: each leaves the right bytes, and their times are compared round by round."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks import goals, io_paths
from benchmarks.report import Report
from tests.support import processes

NBYTES = (9 << 20) + io_paths.UNIT  # two chunks, and a part of one


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return io_paths.compile_program(tmp_path_factory.mktemp("io-paths"))


def source(aligned: bool) -> bytes:
    """What the program writes."""
    words = np.arange((NBYTES + io_paths.UNIT) // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    begin = 0 if aligned else 64
    return words.tobytes()[begin : begin + NBYTES]


@pytest.mark.full
@pytest.mark.parametrize("aligned", io_paths.SOURCES)
@pytest.mark.parametrize("path", io_paths.PATHS)
def test_every_way_leaves_the_right_bytes(program, tmp_path, path, aligned):
    if path == io_paths.DIRECT and not io_paths.takes_direct(tmp_path):
        pytest.skip("no direct writes in the temporary directory")
    for writers in (1, 3):
        (found,) = io_paths.measured(program, tmp_path, [io_paths.Cell(NBYTES, aligned, writers).case(path)])
        assert found["bytes"] == NBYTES and found["seconds"] > 0 and found["cpu"] >= 0
        assert (tmp_path / "io_paths.bin").read_bytes() == source(aligned)


@pytest.mark.full
@pytest.mark.parametrize(
    ("directory", "case", "message"),
    [
        ("nowhere", "mmap,4096,1,1", "nowhere: No such file or directory"),
        (".", "mmap,4097,1,1", "BYTES a multiple of 4096 and 1 to 64 writers; found mmap,4097,1,1"),
        (".", "mmap,4096,65,1", "found mmap,4096,65,1"),
        (".", "splice,4096,1,1", "found splice,4096,1,1"),
        (".", "mmap,4096,1,1,1", "found mmap,4096,1,1,1"),
    ],
)
def test_what_can_not_be_measured_is_an_error_with_a_message(program, tmp_path, directory, case, message):
    done = processes.run([program, tmp_path / directory, case], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and message in done.stderr and not done.stdout
    with pytest.raises(SystemExit, match="io_paths: "):
        io_paths.measured(program, tmp_path / directory, [case])
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_all_of_it_at_small_sizes(program, tmp_path, monkeypatch):
    monkeypatch.setattr(io_paths, "compile_program", lambda folder: program)
    args = argparse.Namespace(quick=True, folder=tmp_path, also=[io_paths.place(f"there={tmp_path}")])
    report = io_paths.measure(args)
    assert not list(tmp_path.iterdir())
    report.save(tmp_path / "io_paths.json")
    report = Report.load(tmp_path / "io_paths.json")
    cells = len(io_paths.SOURCES) * len(io_paths.QUICK_WRITERS)
    for name, folder in ((io_paths.DISK, tmp_path), ("there", tmp_path)):
        rows = [row for row in report.rows if row.labels["place"] == name]
        assert len(rows) == (cells if io_paths.takes_direct(folder) else 0)
    assert all(len(row.samples(path)) == 2 for row in report.rows for path in io_paths.PATHS), (
        "the first round is left out"
    )
    assert io_paths.tables(report).count("\n") == 1 + len(report.rows)
    io_paths.draw(report, tmp_path / "io_paths.png")
    assert (tmp_path / "io_paths.png").read_bytes().startswith(b"\x89PNG")


def test_the_ways_of_one_case_follow_each_other_and_each_is_first_in_turn():
    cells = [io_paths.Cell(io_paths.UNIT, True, writers) for writers in (1, 2)]
    found = list(io_paths.order(cells, 3))
    assert [cell for cell, _ in found] == ([cells[0]] * 3 + [cells[1]] * 3) * 3
    paths = [path for cell, path in found if cell is cells[0]]
    assert [sorted(paths[n : n + 3]) for n in (0, 3, 6)] == [sorted(io_paths.PATHS)] * 3
    assert sorted(paths[::3]) == sorted(io_paths.PATHS)


@pytest.mark.parametrize("text", ["there", "=/tmp", "there=", "disk=/tmp", "there=/nowhere"])
def test_another_place_needs_a_name_of_its_own_and_a_directory(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected NAME=DIRECTORY"):
        io_paths.place(text)


@pytest.mark.parametrize(("mmap", "reached"), [(1.5, True), (0.9, False)])
def test_times_are_compared_with_those_of_the_same_round(mmap, reached):
    report = Report("io_paths", "How?")
    for place, writers, ratio in (("disk", 1, 3.0), ("disk", 8, mmap), ("memory", 1, 2.0)):
        row = report.row(place=place, bytes=200_003_584, aligned=False, writers=writers)
        direct = [0.1, 0.4, 0.2]
        row.add("direct", "s", direct).add("buffered", "s", [2 * one for one in direct])
        row.add("mmap", "s", [ratio * one for one in direct])
        for number, path in enumerate(io_paths.PATHS):
            row.add(f"{path} CPU", "s", [0.01 * number])
    line = f"| disk | 200 | 64 bytes off | 8 | 200 (100..400) | 400 (200..800) | {mmap * 200:.0f} ({mmap * 100:.0f}..{mmap * 400:.0f})"
    line += f" | 2.00 (2.00..2.00) | {mmap:.2f} ({mmap:.2f}..{mmap:.2f}) | 0 / 10 / 20 |"
    assert line in io_paths.tables(report).splitlines()
    disk, memory = goals._io_paths(report)
    assert (disk.reached, memory.reached) == (reached, True) and disk.sure and memory.sure
    assert "200 MB, 64 bytes off, writers: 8" in disk.found
    assert [one.verdict for one in goals._io_paths(None)] == ["-"]
