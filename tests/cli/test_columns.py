"""Lines and tables in a given number of columns."""

import pytest
from hypothesis import strategies as st
from rich.cells import cell_len

from deepfreeze.cli import columns
from tests.support.properties import holds

TEXTS = st.text(st.sampled_from("ab/_.-, 1漢"), max_size=60)


@holds(examples=25, text=TEXTS, width=st.integers(1, 30))
def test_a_wrapped_text_has_all_of_it_and_keeps_to_the_width(text, width):
    lines = columns.wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    if width > 1 or "漢" not in text:
        assert all(cell_len(line.rstrip()) <= width for line in lines if len(lines) > 1)


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("would free 42 kB", 12, ["would free", "42 kB"]),
        ("at runs/nt3/step-0000000040 now", 20, ["at runs/nt3/", "step-0000000040 now"]),
        ("a_very_long_name", 8, ["a_very_", "long_", "name"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        (" 漢1", 2, ["漢", "1"]),
        ("abcdefgh ij", None, ["abcdefgh ij"]),
        ("", 5, [""]),
    ],
)
def test_a_line_breaks_between_words_and_only_a_long_word_inside(text, width, lines):
    assert columns.wrapped(text, width) == lines


def test_a_line_goes_on_indented():
    assert columns.hanging("  a long line of words", 12) == ["  a long", "    line of", "    words"]


HEADS = [">n", "~text", "?>more", "size"]
ROWS = [("7", "some words of a text that is longer", "extra", "1 kB"), ("1234", "short", "x", "20 kB")]


def test_a_table_that_fits_is_not_changed():
    assert columns.table(HEADS, ROWS, None) == columns.table(HEADS, ROWS, 80)
    assert columns.table(HEADS, ROWS, 80) == [
        "   n  text                                  more  size",
        "   7  some words of a text that is longer  extra  1 kB",
        "1234  short                                    x  20 kB",
    ]


def test_long_cells_fold_and_then_optional_columns_go():
    assert columns.table(HEADS, ROWS, 42) == [
        "   n  text                     more  size",
        "   7  some words of a text    extra  1 kB",
        "      that is longer",
        "1234  short                       x  20 kB",
    ]
    assert columns.table(HEADS, ROWS, 32) == [
        "   n  text                 size",
        "   7  some words of a      1 kB",
        "      text that is longer",
        "1234  short                20 kB",
    ]


def test_a_column_with_a_name_keeps_it_whole_while_another_can_fold():
    rows = [("a-long-name-of-a-run", "some words that may fold")]
    assert columns.table(["~run", "~state"], rows, 34) == [
        "run                   state",
        "a-long-name-of-a-run  some words",
        "                      that may",
        "                      fold",
    ]


def test_the_first_column_folds_last():
    heads, rows = ["~run", "~holds", "~state"], [("a run", "full, keras 3", "ranks differed, 1 damaged")]
    assert columns.table(heads, rows, 32) == [
        "run    holds          state",
        "a run  full, keras 3  ranks",
        "                      differed,",
        "                      1 damaged",
    ]


def test_a_name_breaks_only_if_nothing_else_makes_room():
    rows = [("adam/dense_1_kernel_momentum", "0[0:102400]")]
    assert columns.table(["~tensor", "~bytes"], rows, 34) == [
        "tensor                 bytes",
        "adam/dense_1_kernel_   0[0:102400]",
        "momentum",
    ]


@holds(examples=25, rows=st.lists(st.tuples(*[TEXTS] * 4), min_size=1, max_size=5))
def test_a_table_keeps_to_the_width_if_its_fixed_columns_do(rows):
    rows = [(row[0][:8], row[1], row[2], row[3][:8]) for row in rows]
    assert all(cell_len(line) <= 60 for line in columns.table(HEADS, rows, 60))
