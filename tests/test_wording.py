"""Sizes, times, counts and directories as messages have them."""

import pytest

from deepfreeze import wording


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1540, "1.5 kB"),
        (577e6, "577 MB"),
        (999.6e6, "1 GB"),
        (2.3e13, "23 TB"),
    ],
)
def test_a_size_has_the_unit_in_which_it_is_short(nbytes, text):
    assert wording.size(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"), (0.009, "9 ms"), (0.9999, "1 s"), (1.24, "1.2 s"), (59.4, "59 s"), (59.6, "1 min"), (3590, "1 h"),
        (9000, "2.5 h"), (86400, "24 h"), (4e5, "5 days"),
    ],
)  # fmt: skip
def test_a_time_has_the_unit_in_which_it_is_short(seconds, text):
    assert wording.duration(seconds) == text


def test_an_age_is_never_below_zero():
    assert wording.age("1970-01-01T00:00:30Z", 150.0) == "2 min"
    assert wording.age("1970-01-01T00:00:30Z", 0.0) == "0 ms", "the clock of another node is ahead"


def test_one_is_no_plural():
    assert [wording.count(n, "checkpoint") for n in (0, 1, 2)] == ["0 checkpoints", "1 checkpoint", "2 checkpoints"]


def test_a_path_below_the_working_directory_is_short(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [str(tmp_path / "runs" / "nt3"), str(tmp_path.parent / "nt3"), "runs/nt3", "s3://bucket/nt3"]
    assert [wording.near(path) for path in given] == ["runs/nt3", given[1], "runs/nt3", "s3://bucket/nt3"]
