"""How many captures a number of bytes allows."""

import pytest

from deepfreeze.errors import OptionError
from deepfreeze.freeze.memory_bound import MemoryBound
from deepfreeze.freeze.settings import Engine
from deepfreeze.ranks.world import WorldError
from tests.support import threads

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
    found = threads.run(1, lambda world: MemoryBound(12588, 100, in_engine=False).counted(engine, world))
    assert [(one.in_flight, one.slots) for one in found] == [(2, 3)]


def test_all_ranks_hold_as_many_as_the_rank_with_the_largest():
    found = threads.run(3, lambda world: MemoryBound(BLOCKS + 1000, [200, 300, 499][world.rank]).counted(ENGINE, world))
    assert [(engine.in_flight, engine.slots) for engine in found] == [(2, 2)] * 3
    one = threads.run(2, lambda world: MemoryBound(BLOCKS + 1000, [200, 501][world.rank]).counted(ENGINE, world))
    assert [(engine.in_flight, engine.slots) for engine in one] == [(1, 2)] * 2


def test_a_rank_whose_memory_is_too_small_ends_all():
    def rank(world):
        with pytest.raises(OptionError if world.rank else WorldError):
            MemoryBound(BLOCKS + 1000, [200, 2000][world.rank]).counted(ENGINE, world)
        return True

    assert threads.run(2, rank) == [True, True]
