"""How many captures a number of bytes allows."""

import pytest

from deepfreeze.engine.memory_bound import MemoryBound
from deepfreeze.engine.options import Engine
from deepfreeze.errors import OptionError

ENGINE = Engine(writers=8, chunk_bytes=4 << 20)
BLOCKS = 8 * (4 << 20)


@pytest.mark.parametrize(("memory", "captures"), [(620, 1), (1239, 1), (1240, 2), (6_200_000, 1024)])
def test_as_many_whole_captures_as_fit_beside_the_writers_blocks(memory, captures):
    assert MemoryBound(memory * 1_000_000 + BLOCKS, 620_000_000).captures(ENGINE) == captures


def test_too_little_names_the_least():
    with pytest.raises(
        OptionError, match="at least 653554432 bytes on this rank: 620000000 for its shard and 33554432"
    ):
        MemoryBound(600_000_000, 620_000_000).captures(ENGINE)


def test_captures_in_the_frameworks_memory_are_one_more():
    engine = Engine(writers=1, chunk_bytes=4096)
    with pytest.raises(OptionError, match="at least 12488 bytes"):
        MemoryBound(12487, 100, in_engine=False).captures(engine)
    assert MemoryBound(12588, 100, in_engine=False).bounded(engine).in_flight == 2


def test_no_more_captures_than_may_be_uncommitted():
    engine = Engine(writers=1, chunk_bytes=4096, uncommitted=2)
    assert MemoryBound(10**6, 100).captures(engine) == 2
    assert MemoryBound(10**6, 100, in_engine=False).bounded(engine).in_flight == 2
