"""Placement promises: every byte once, whole pages, balanced to one unit, the same plan on every rank."""

import random

import pytest

from deepfreeze.core.placement import UNIT, WHOLE_BELOW, balanced
from deepfreeze.core.tensors import PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec

WORLDS = [1, 2, 3, 5, 64]
SIZES = [0, 1, 10, 1000, 16383, 16384, 16385, 100_000, 1_000_003]


def make_specs(seed: int, roles=(REPLICATED,)) -> list[TensorSpec]:
    rng = random.Random(seed)
    sizes = [rng.choice([*SIZES, rng.randrange(1, 500_000)]) for _ in range(rng.randrange(1, 60))]
    dtypes = ["float32", "float16", "float64", "int64", "uint8"]
    return [TensorSpec(str(i), rng.choice(dtypes), (n,), rng.choice(roles)) for i, n in enumerate(sizes)]


@pytest.mark.parametrize("world", WORLDS)
def test_every_byte_is_covered_exactly_once_and_cut_at_pages(world):
    for seed in range(40):
        specs = make_specs(seed, (REPLICATED, REPLICATED, RANK_LOCAL))
        ranges = {i: [] for i in range(len(specs))}
        for shards in balanced(specs, world):
            for shard in shards:
                ranges[shard.tensor].append((shard.start, shard.stop))
        for i, spec in enumerate(specs):
            end = 0
            for start, stop in sorted(ranges[i]):
                assert start == end and start % UNIT == 0, f"seed {seed}, tensor {i}"
                end = stop
            assert end == spec.nbytes, f"seed {seed}, tensor {i}"


@pytest.mark.parametrize("world", WORLDS)
def test_bytes_per_rank_are_balanced_to_one_unit(world):
    for seed in range(40):
        specs = make_specs(seed)
        small = [spec.nbytes for spec in specs if spec.nbytes < WHOLE_BELOW]
        unit = max([UNIT, *small])  # a tensor that is kept whole is the unit where nothing larger evens it out
        loads = [sum(shard.nbytes for shard in shards) for shards in balanced(specs, world)]
        assert max(loads) - min(loads) <= unit, f"seed {seed}"


def test_with_a_large_tensor_the_balance_is_4_kib():
    specs = [TensorSpec("large", "float32", (10_000_000,), REPLICATED)]
    specs += [TensorSpec(f"small{i}", "float32", (i * 97,), REPLICATED) for i in range(100)]
    for world in WORLDS:
        loads = [sum(shard.nbytes for shard in shards) for shards in balanced(specs, world)]
        assert max(loads) - min(loads) <= UNIT


def test_small_tensors_stay_whole():
    specs = make_specs(7)
    for shards in balanced(specs, 5):
        for shard in shards:
            if specs[shard.tensor].nbytes < WHOLE_BELOW:
                assert (shard.start, shard.stop) == (0, specs[shard.tensor].nbytes)


def test_rank_local_tensors_are_rank_0s_and_never_cut_and_seeds_are_not_placed():
    specs = [TensorSpec("moving_mean", "float32", (1 << 20,), RANK_LOCAL), TensorSpec("seed", "int64", (2,), PER_RANK)]
    plan = balanced(specs, 3)
    assert [(s.tensor, s.start, s.stop) for s in plan[0]] == [(0, 0, 4 << 20)]
    assert plan[1] == plan[2] == []


def test_the_plan_is_the_same_on_every_rank():
    specs = make_specs(3)
    assert balanced(specs, 5) == balanced(list(specs), 5)
