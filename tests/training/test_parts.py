"""How a part of a training is written and tested: the example that ``deepfreeze.training.part`` names, and what ``Begun`` offers."""

from __future__ import annotations

import pytest

from deepfreeze.training.parts import table
from tests.support import sources
from tests.support.played_ranks import PlayedRanks
from tests.training.every_tenth import EveryTenth


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_line_at_each_tenth_checkpoint_comes_once_and_from_rank_0(verbose):
    ranks = PlayedRanks(2)
    parts = [EveryTenth(ranks.begun(rank, verbose)) for rank in range(2)]
    for step in range(1, 26):
        parts[1].captured(step)  # rank 0 is late, and all ranks wait for none
        if step % 4 == 0:
            ranks.meet()
        for part in parts:
            part.settled(None, None, 0)
    lines = ["10 checkpoints", "20 checkpoints"]
    assert ranks.said == [lines if verbose else [], []] and ranks.noted == [[] if verbose else lines, []]


def test_each_part_has_a_row_with_a_reason_and_a_file():
    """``Part`` says that a part is added by a file and a row. A row without a file, or a file without a row, would be another way."""
    files = {path.stem for path in (sources.ROOT / "deepfreeze" / "training" / "parts").glob("*.py")}
    assert set(table.TABLE) == files - {"__init__", "table"}
    assert all(row.why for row in table.TABLE.values())
