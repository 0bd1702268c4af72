"""Placement promises: every byte once, whole pages, balanced to one page, the same plan on every rank."""

import random

import pytest

from deepfreeze.core.placement import PLACEMENTS, SMALL, UNIT, contiguous, in_file_order, pages, per_layer
from deepfreeze.core.tensors import PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec

WORLDS = [1, 2, 3, 5, 64]
SIZES = [0, 1, 10, 1000, 16383, 16384, 16385, 100_000, 1_000_003]

both = pytest.mark.parametrize("place", PLACEMENTS.values(), ids=PLACEMENTS)


def make_specs(seed: int, roles=(REPLICATED,)) -> list[TensorSpec]:
    rng = random.Random(seed)
    sizes = [rng.choice([*SIZES, rng.randrange(1, 500_000)]) for _ in range(rng.randrange(1, 60))]
    dtypes = ["float32", "float16", "float64", "int64", "uint8"]
    return [TensorSpec(str(i), rng.choice(dtypes), (n,), rng.choice(roles)) for i, n in enumerate(sizes)]


def loads(plan) -> list[int]:
    """Pages per rank: the padding behind a tensor's end is written too."""
    return [sum(pages(shard.nbytes) for shard in shards) for shards in plan]


@both
@pytest.mark.parametrize("world", WORLDS)
def test_every_byte_is_covered_exactly_once_and_cut_at_pages(place, world):
    fresh = random.randrange(2**32)
    for seed in [*range(40), *range(fresh, fresh + 20)]:
        specs = make_specs(seed, (REPLICATED, REPLICATED, RANK_LOCAL))
        ranges = {i: [] for i in range(len(specs))}
        plan = place(specs, world)
        assert len(plan) == world
        for shards in plan:
            assert [s.tensor for s in shards] == sorted(s.tensor for s in shards), f"seed {seed}"
            for shard in shards:
                ranges[shard.tensor].append((shard.start, shard.stop))
        for i, spec in enumerate(specs):
            end = 0
            for start, stop in sorted(ranges[i]):
                # Cut at pages alone, so no two ranks share one.
                assert start == end and start % UNIT == 0 and stop > start, f"seed {seed}, tensor {i}"
                end = stop
            assert end == spec.nbytes, f"seed {seed}, tensor {i}"


@both
@pytest.mark.parametrize("world", WORLDS)
def test_pages_per_rank_are_balanced_to_one(place, world):
    for seed in range(40):
        found = loads(place(make_specs(seed), world))
        assert max(found) - min(found) <= 1, f"seed {seed}"


@both
def test_all_ranks_make_up_for_what_rank_0_alone_saves(place):
    specs = [
        TensorSpec("kernel", "uint8", (10 << 20,), REPLICATED),
        TensorSpec("mean", "uint8", (2 << 20,), RANK_LOCAL),
    ]
    assert loads(place(specs, 3)) == [(4 << 20) // UNIT] * 3
    specs[1] = TensorSpec("mean", "uint8", (20 << 20,), RANK_LOCAL)
    assert loads(place(specs, 3)) == [(20 << 20) // UNIT, (5 << 20) // UNIT, (5 << 20) // UNIT]


def ranges(plan, specs, wanted) -> list[list[tuple[int, int]]]:
    """By rank: the ranges of pages that it has of the wanted tensors, where these follow each other in the order of the file."""
    begins, end = {}, 0
    for i in (i for i in in_file_order(specs) if wanted(specs[i])):
        begins[i], end = end, end + pages(specs[i].nbytes)
    found = []
    for shards in plan:
        mine: list[tuple[int, int]] = []
        own = [s for s in shards if s.tensor in begins]
        for shard in sorted(own, key=lambda shard: begins[shard.tensor] + shard.start // UNIT):
            begin = begins[shard.tensor] + shard.start // UNIT
            stop = begin + pages(shard.nbytes)
            if mine and mine[-1][1] == begin:
                mine[-1] = mine[-1][0], stop
            else:
                mine.append((begin, stop))
        found.append(mine)
    return found


@pytest.mark.parametrize("world", WORLDS)
def test_contiguous_gives_each_rank_one_range_of_the_file(world):
    for seed in range(40):
        specs = make_specs(seed, (REPLICATED, REPLICATED, RANK_LOCAL))
        found = ranges(contiguous(specs, world), specs, lambda spec: spec.role == REPLICATED)
        assert all(len(mine) <= 1 for mine in found), f"seed {seed}"


@pytest.mark.parametrize("world", WORLDS)
def test_small_tensors_are_dealt_out_in_one_range_of_the_file_per_rank(world):
    for seed in range(40):
        specs = make_specs(seed, (REPLICATED, REPLICATED, RANK_LOCAL))
        found = ranges(per_layer(specs, world), specs, lambda s: s.role == REPLICATED and s.nbytes < SMALL)
        assert all(len(mine) <= 1 for mine in found), f"seed {seed}"


@pytest.mark.parametrize("world", WORLDS)
def test_each_rank_has_a_share_of_every_large_tensor(world):
    specs = [TensorSpec(str(i), "float32", (n * 100_000,), REPLICATED) for i, n in enumerate((3, 7, 20))]
    plan = per_layer(specs, world)
    for i, spec in enumerate(specs):
        shares = [sum(pages(shard.nbytes) for shard in shards if shard.tensor == i) for shards in plan]
        assert max(shares) - min(shares) <= 1 and sum(shares) == pages(spec.nbytes)


@both
def test_rank_local_tensors_are_rank_0s_and_never_cut_and_seeds_are_not_placed(place):
    specs = [TensorSpec("moving_mean", "float32", (1 << 20,), RANK_LOCAL), TensorSpec("seed", "int64", (2,), PER_RANK)]
    plan = place(specs, 3)
    assert [(s.tensor, s.start, s.stop) for s in plan[0]] == [(0, 0, 4 << 20)]
    assert plan[1] == plan[2] == []


@both
def test_the_plan_is_the_same_on_every_rank(place):
    specs = make_specs(3)
    assert place(specs, 5) == place(list(specs), 5)
