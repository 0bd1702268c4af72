"""Placement promises: every byte once, whole pages, balanced to one page, the same plan on every rank."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import strategies as st

from deepfreeze.format.tensors import PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec
from deepfreeze.plan.placement import PLACEMENTS, SMALL, UNIT, contiguous, in_file_order, pages, per_layer
from tests.support.properties import holds

DTYPES = ["uint8", "float16", "float32", "float64"]
EDGES = [0, 1, UNIT - 1, UNIT, UNIT + 1, SMALL - 1, SMALL, SMALL + 1, 3 * UNIT]

both = pytest.mark.parametrize("place", PLACEMENTS.values(), ids=PLACEMENTS)
worlds = st.integers(1, 70)


def models(*roles: str) -> st.SearchStrategy[list[TensorSpec]]:
    """The tensors of a model, with sizes on both sides of every limit."""
    size = st.sampled_from(EDGES) | st.integers(0, 100 * UNIT)
    part = st.tuples(st.sampled_from(DTYPES), size, st.sampled_from(roles))
    named = lambda parts: [TensorSpec(str(i), dtype, (n,), role) for i, (dtype, n, role) in enumerate(parts)]  # noqa: E731
    return st.lists(part, max_size=30).map(named)


anything = models(REPLICATED, RANK_LOCAL, PER_RANK)


def loads(plan) -> list[int]:
    """Pages per rank: the padding behind a tensor's end is written too."""
    return [sum(pages(shard.nbytes) for shard in shards) for shards in plan]


@both
@holds(specs=anything, world=worlds)
def test_every_byte_is_covered_exactly_once_and_cut_at_pages(place, specs, world):
    plan = place(specs, world)
    assert len(plan) == world
    found = {i: [] for i in range(len(specs))}
    for shards in plan:
        assert [s.tensor for s in shards] == sorted(s.tensor for s in shards)
        for shard in shards:
            found[shard.tensor].append((shard.start, shard.stop))
    for i, spec in enumerate(specs):
        end = 0
        for start, stop in sorted(found[i]):
            # Cut at pages alone, so no two ranks share one.
            assert start == end and start % UNIT == 0 and stop > start, f"tensor {i}"
            end = stop
        assert end == (0 if spec.role == PER_RANK else spec.nbytes), f"tensor {i}"


@both
@holds(specs=anything, world=worlds)
def test_pages_per_rank_are_balanced_to_one(place, specs, world):
    """Also where rank 0 alone saves tensors: it has more than the others only if these are more than its share."""
    found = loads(place(specs, world))
    own = sum(pages(spec.nbytes) for spec in specs if spec.role == RANK_LOCAL)
    assert max(found) - min(found) <= 1 or (found[0] == own and max(found[1:]) - min(found[1:]) <= 1)
    assert max(found) == max(own, -(-sum(found) // world))


@both
@holds(specs=anything, world=worlds)
def test_rank_local_tensors_are_whole_and_rank_0s_and_seeds_not_placed(place, specs, world):
    plan = place(specs, world)
    own = [(s.tensor, s.start, s.stop) for s in plan[0] if specs[s.tensor].role == RANK_LOCAL]
    assert own == [(i, 0, spec.nbytes) for i, spec in enumerate(specs) if spec.role == RANK_LOCAL and spec.nbytes]
    assert all(specs[shard.tensor].role == REPLICATED for shards in plan[1:] for shard in shards)
    assert all(specs[shard.tensor].role != PER_RANK for shard in plan[0])


@both
@holds(specs=anything, world=worlds)
def test_the_plan_is_the_same_on_every_rank(place, specs, world):
    """The plan follows from sizes and roles; what tensors are called, and of what type they are, changes nothing."""
    others = [replace(spec, name=f"other/{spec.name}", dtype="uint8", shape=(spec.nbytes, 1)) for spec in specs]
    assert place(specs, world) == place(others, world)


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


def assert_dealt_in_order(found: list[list[tuple[int, int]]]) -> None:
    """At most one range for each rank, in the order of the ranks."""
    assert all(len(mine) <= 1 for mine in found)
    row = [mine[0] for mine in found if mine]
    assert all(a[1] == b[0] for a, b in pairwise(row)) and (not row or row[0][0] == 0)


@holds(specs=anything, world=worlds)
def test_contiguous_gives_each_rank_one_range_of_the_file(specs, world):
    assert_dealt_in_order(ranges(contiguous(specs, world), specs, lambda spec: spec.role == REPLICATED))


@holds(specs=anything, world=worlds)
def test_small_tensors_are_dealt_out_in_one_range_of_the_file_per_rank(specs, world):
    small = lambda spec: spec.role == REPLICATED and spec.nbytes < SMALL  # noqa: E731
    assert_dealt_in_order(ranges(per_layer(specs, world), specs, small))


@holds(specs=models(REPLICATED), world=worlds)
def test_each_rank_has_a_share_of_every_large_tensor(specs, world):
    """One range each, and shares that differ by what levels the load before: a page, and by the page that is left over."""
    plan = per_layer(specs, world)
    for i, spec in enumerate(specs):
        if spec.nbytes >= SMALL:
            shares = [sum(pages(shard.nbytes) for shard in shards if shard.tensor == i) for shards in plan]
            assert max(shares) - min(shares) <= 2 and sum(shares) == pages(spec.nbytes)
            assert all(sum(shard.tensor == i for shard in shards) <= 1 for shards in plan)


@both
def test_all_ranks_make_up_for_what_rank_0_alone_saves(place):
    specs = [
        TensorSpec("kernel", "uint8", (10 << 20,), REPLICATED),
        TensorSpec("mean", "uint8", (2 << 20,), RANK_LOCAL),
    ]
    assert loads(place(specs, 3)) == [(4 << 20) // UNIT] * 3
    specs[1] = TensorSpec("mean", "uint8", (20 << 20,), RANK_LOCAL)
    assert loads(place(specs, 3)) == [(20 << 20) // UNIT, (5 << 20) // UNIT, (5 << 20) // UNIT]
