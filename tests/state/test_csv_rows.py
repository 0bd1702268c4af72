"""Which rows of a CSV file stay when a training goes on: whole ones, of epochs that are finished."""

from __future__ import annotations

import pytest

from deepfreeze.state import csv_rows

HEADER = "epoch;loss;note\r\n"
ROWS = ["0;0.5;a\r\n", '1;0.4;"two\r\nlines; and more"\r\n', "2;0.3;c\r\n"]


def cut(path, text, **options):
    """What is left of a file with this text."""
    path.write_bytes(text.encode())
    options = {"separator": ";", "begin": 0, **options}
    csv_rows.cut(str(path), csv_rows.end_of_rows(str(path), **options))
    return path.read_bytes().decode()


@pytest.mark.parametrize("epoch", range(5))
def test_rows_of_epochs_that_are_trained_again_go(epoch, tmp_path):
    assert cut(tmp_path / "log", HEADER + "".join(ROWS), epoch=epoch) == HEADER + "".join(ROWS[:epoch])


@pytest.mark.parametrize("lost", range(1, 10))
def test_a_row_that_was_cut_short_goes_whole(lost, tmp_path):
    text = (HEADER + "".join(ROWS))[:-lost]
    assert cut(tmp_path / "log", text, epoch=9) == HEADER + "".join(ROWS[:2])


@pytest.mark.parametrize("damage", ["\0\0\0\0\r\n", "no number;0.2;d\r\n", "3;0.2\r\n", "\r\n"])
def test_what_is_no_row_goes_with_all_behind_it(damage, tmp_path):
    assert cut(tmp_path / "log", HEADER + ROWS[0] + damage + ROWS[2], epoch=9) == HEADER + ROWS[0]


def test_rows_of_an_earlier_fit_stay(tmp_path):
    before = HEADER + "".join(ROWS)
    rows = ROWS[0] + ROWS[1]
    assert cut(tmp_path / "log", before + rows, begin=len(before), epoch=1) == before + ROWS[0]
    assert cut(tmp_path / "log", before, begin=len(before) + 5, epoch=1) == before, "the file was cut by somebody else"


def test_a_loop_has_offsets_in_place_of_epochs(tmp_path):
    text = HEADER + "".join(ROWS)
    end = len(HEADER + ROWS[0])
    assert cut(tmp_path / "log", text, end=end) == cut(tmp_path / "log", text, end=end + 3) == HEADER + ROWS[0]


def test_a_file_that_is_not_there_has_no_rows(tmp_path):
    path = str(tmp_path / "log")
    assert csv_rows.end_of_rows(path, ",", 7) == csv_rows.size(path) == 0
    csv_rows.cut(path, 0)
