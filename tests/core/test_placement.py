"""Placement promises: every byte once, whole pages, balanced to one unit, the same plan on every rank."""

import random

import pytest

from deepfreeze.core.placement import PLACEMENTS, UNIT, WHOLE_BELOW, contiguous, per_layer
from deepfreeze.core.tensors import PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec

WORLDS = [1, 2, 3, 5, 64]
SIZES = [0, 1, 10, 1000, 16383, 16384, 16385, 100_000, 1_000_003]

both = pytest.mark.parametrize("place", PLACEMENTS.values(), ids=PLACEMENTS)


def make_specs(seed: int, roles=(REPLICATED,)) -> list[TensorSpec]:
    rng = random.Random(seed)
    sizes = [rng.choice([*SIZES, rng.randrange(1, 500_000)]) for _ in range(rng.randrange(1, 60))]
    dtypes = ["float32", "float16", "float64", "int64", "uint8"]
    return [TensorSpec(str(i), rng.choice(dtypes), (n,), rng.choice(roles)) for i, n in enumerate(sizes)]


def kept_whole(specs: list[TensorSpec]) -> int:
    """The unit of balance: a tensor that is kept whole is one where nothing larger evens it out."""
    return max([UNIT, *(spec.nbytes for spec in specs if spec.nbytes < WHOLE_BELOW)])


def loads(plan) -> list[int]:
    return [sum(shard.nbytes for shard in shards) for shards in plan]


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


@pytest.mark.parametrize("world", WORLDS)
def test_bytes_per_rank_are_balanced_to_one_unit(world):
    for seed in range(40):
        specs = make_specs(seed)
        found = loads(per_layer(specs, world))
        assert max(found) - min(found) <= kept_whole(specs), f"seed {seed}"


@pytest.mark.parametrize("world", WORLDS)
def test_contiguous_bytes_per_rank_are_within_one_unit_of_an_even_share(world):
    for seed in range(40):
        specs = make_specs(seed)
        share = sum(spec.nbytes for spec in specs) / world
        assert all(abs(load - share) <= kept_whole(specs) for load in loads(contiguous(specs, world))), f"seed {seed}"


def test_contiguous_makes_up_for_what_rank_0_alone_saves():
    specs = [
        TensorSpec("kernel", "uint8", (10 << 20,), REPLICATED),
        TensorSpec("mean", "uint8", (2 << 20,), RANK_LOCAL),
    ]
    assert loads(contiguous(specs, 3)) == [4 << 20] * 3
    specs[1] = TensorSpec("mean", "uint8", (20 << 20,), RANK_LOCAL)
    assert loads(contiguous(specs, 3)) == [20 << 20, 5 << 20, 5 << 20]


@pytest.mark.parametrize("world", WORLDS)
def test_contiguous_gives_each_rank_one_range_of_the_sequence(world):
    for seed in range(40):
        specs = make_specs(seed, (REPLICATED, REPLICATED, RANK_LOCAL))
        order = [i for i, spec in enumerate(specs) if spec.role == REPLICATED and spec.nbytes]
        at = (order[0], 0) if order else None
        for shards in contiguous(specs, world):
            for shard in shards:
                if specs[shard.tensor].role == RANK_LOCAL:
                    continue
                # Each begins where the one before it, on this rank or the last, has ended.
                assert (shard.tensor, shard.start) == at, f"seed {seed}"
                n = order.index(shard.tensor) + 1
                ended = shard.stop == specs[shard.tensor].nbytes
                at = ((order[n], 0) if n < len(order) else None) if ended else (shard.tensor, shard.stop)
        assert at is None, f"seed {seed}"


def test_with_a_large_tensor_the_balance_is_4_kib():
    specs = [TensorSpec("large", "float32", (10_000_000,), REPLICATED)]
    specs += [TensorSpec(f"small{i}", "float32", (i * 97,), REPLICATED) for i in range(100)]
    for world in WORLDS:
        found = loads(per_layer(specs, world))
        assert max(found) - min(found) <= UNIT


@both
def test_small_tensors_stay_whole(place):
    specs = make_specs(7)
    for shards in place(specs, 5):
        for shard in shards:
            if specs[shard.tensor].nbytes < WHOLE_BELOW:
                assert (shard.start, shard.stop) == (0, specs[shard.tensor].nbytes)


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
