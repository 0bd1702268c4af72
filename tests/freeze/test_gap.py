"""The gap of a model file is written whole, each page by one rank, by few ranks."""

from itertools import pairwise

import pytest

from deepfreeze.freeze.regions import part_of_gap

PAGE = 4096


@pytest.mark.parametrize("pages", [0, 1, 15, 232, 16_383])
@pytest.mark.parametrize("world", [1, 2, 7, 16, 64, 1024])
def test_the_first_16_ranks_write_each_page_of_the_gap_once(world, pages):
    """As even as pages allow."""
    parts = [part_of_gap((24 * PAGE, pages * PAGE), rank, world) for rank in range(world)]
    assert parts[0][0] == 24 * PAGE and sum(nbytes for _, nbytes in parts) == pages * PAGE
    assert all(begin + nbytes == after for (begin, nbytes), (after, _) in pairwise(parts))
    assert all(offset % PAGE == nbytes % PAGE == 0 for offset, nbytes in parts)
    sizes = [nbytes for _, nbytes in parts]
    assert max(sizes) - min(sizes[:16]) <= PAGE and not any(sizes[16:])
