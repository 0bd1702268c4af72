"""Placement promises: every byte once, whole pages, balanced to one page, few ranges per rank, the same plan on every rank; and with a
store's granules: few of them with two ranks, balanced within 2 %."""

import hashlib
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st

from deepfreeze.format.tensors import PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec
from deepfreeze.plan.capture_plan import Point, neighbours
from deepfreeze.plan.placement import (
    PLACEMENTS,
    SMALL,
    UNIT,
    choose_granule,
    contiguous,
    first_large,
    in_file_order,
    pages,
    per_layer,
)
from tests.support.properties import holds

DTYPES = ["uint8", "float16", "float32", "float64"]
EDGES = [0, 1, UNIT - 1, UNIT, UNIT + 1, SMALL - 1, SMALL, SMALL + 1, 3 * UNIT]

both = pytest.mark.parametrize("place", PLACEMENTS.values(), ids=PLACEMENTS)
worlds = st.integers(1, 70) | st.sampled_from([128, 500, 1024])
wide_worlds = st.integers(64, 1100)
few = st.integers(2, 20)  # ranks with shares of many granules
sizes_of_granules = st.sampled_from([UNIT << n for n in range(8)])


def models(*roles: str) -> st.SearchStrategy[list[TensorSpec]]:
    """The tensors of a model: a few with sizes on both sides of every limit, or so many large ones that ranks take several turns."""
    size = st.sampled_from(EDGES) | st.integers(0, 100 * UNIT)
    part = st.tuples(st.sampled_from(DTYPES), size, st.sampled_from(roles))
    layer = st.tuples(st.just("uint8"), st.integers(SMALL - UNIT, 90 * UNIT), st.sampled_from(roles))
    named = lambda parts: [TensorSpec(str(i), dtype, (n,), role) for i, (dtype, n, role) in enumerate(parts)]  # noqa: E731
    return (st.lists(part, max_size=30) | st.lists(layer, min_size=20, max_size=50)).map(named)


anything = models(REPLICATED, RANK_LOCAL, PER_RANK)


def loads(plan) -> list[int]:
    """Pages per rank: the padding behind a tensor's end is written too."""
    return [sum(pages(shard.nbytes) for shard in shards) for shards in plan]


@both
@holds(specs=anything, world=worlds | few, granule=sizes_of_granules)
def test_every_byte_is_covered_exactly_once_and_cut_at_pages(place, specs, world, granule):
    """Also with granules that are larger than the rule has them."""
    plan = place(specs, world, granule)
    assert len(plan) == world
    found = {i: [] for i in range(len(specs))}
    for shards in plan:
        assert [s.tensor for s in shards] == sorted(s.tensor for s in shards)
        for shard in shards:
            found[shard.tensor].append((shard.start, shard.stop))
        assert not any(a.tensor == b.tensor and a.stop == b.start for a, b in pairwise(shards)), (
            "one range in two shards"
        )
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
@holds(specs=anything, world=few, granule=sizes_of_granules)
def test_bytes_per_rank_are_balanced_within_2_percent_or_one_page(place, specs, world, granule):
    found = loads(place(specs, world, choose_granule(specs, world, stripe=granule)))
    own = sum(pages(spec.nbytes) for spec in specs if spec.role == RANK_LOCAL)
    share = sum(pages(spec.nbytes) for spec in specs if spec.role == REPLICATED) / world
    within = max(1.0, 0.02 * share)
    assert max(found) - min(found) <= within or (found[0] == own and max(found[1:]) - min(found[1:]) <= within)


@both
@holds(specs=anything, world=worlds | few, granule=sizes_of_granules)
def test_rank_local_tensors_are_whole_and_rank_0s_and_seeds_not_placed(place, specs, world, granule):
    plan = place(specs, world, granule)
    own = [(s.tensor, s.start, s.stop) for s in plan[0] if specs[s.tensor].role == RANK_LOCAL]
    assert own == [(i, 0, spec.nbytes) for i, spec in enumerate(specs) if spec.role == RANK_LOCAL and spec.nbytes]
    assert all(specs[shard.tensor].role == REPLICATED for shards in plan[1:] for shard in shards)
    assert all(specs[shard.tensor].role != PER_RANK for shard in plan[0])


@both
@holds(specs=anything, world=worlds | few, granule=sizes_of_granules)
def test_the_plan_is_the_same_on_every_rank(place, specs, world, granule):
    """The plan follows from sizes and roles; what tensors are called, and of what type they are, changes nothing."""
    others = [replace(spec, name=f"other/{spec.name}", dtype="uint8", shape=(spec.nbytes, 1)) for spec in specs]
    assert place(specs, world, granule) == place(others, world, granule)


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
def test_all_ranks_share_a_tensor_of_an_eighth_of_the_file(specs, world):
    """One range each. The shares differ by what levels the load before: a unit of the smaller tensors, and pages of the small ones."""
    plan = per_layer(specs, world)
    total = sum(pages(spec.nbytes) for spec in specs)
    for i, spec in enumerate(specs):
        if spec.nbytes >= SMALL and pages(spec.nbytes) >= max(world, -(-total // 8)):
            mine = [[shard for shard in shards if shard.tensor == i] for shards in plan]
            assert all(len(shards) <= 1 for shards in mine)
            shares = [sum(pages(shard.nbytes) for shard in shards) for shards in mine]
            assert max(shares) - min(shares) <= max(1, total // (8 * world)) + 6


@holds(specs=models(REPLICATED), world=wide_worlds | st.integers(64, 100), granule=sizes_of_granules)
def test_from_64_ranks_on_a_rank_has_nine_ranges_of_the_file(specs, world, granule):
    """Eight turns, and one range of the small tensors. Granules add one, of the pages that level the ranks. A range is cut where a tensor
    ends in it, and nowhere else."""
    granule = choose_granule(specs, world, stripe=granule)
    plan, most = per_layer(specs, world, granule), 9 + (granule > UNIT)
    assert max(len(mine) for mine in ranges(plan, specs, lambda spec: True)) <= most
    assert sum(len(shards) for shards in plan) <= most * world + len(specs)


@holds(specs=models(REPLICATED), world=wide_worlds)
def test_large_tensors_give_a_rank_at_most_16_pieces_in_small_units(specs, world):
    """A unit below 64 KiB has the end of one large tensor at most, so a turn has two pieces at most."""
    if sum(pages(spec.nbytes) for spec in specs) <= 8 * world * (SMALL // UNIT - 1):
        for shards in per_layer(specs, world):
            assert sum(specs[shard.tensor].nbytes >= SMALL for shard in shards) <= 16


def resnet_50() -> list[TensorSpec]:
    """The tensors of ResNet-50 with 1000 classes, trained by SGD with momentum: of the sizes and in the order of Keras's own."""
    kernels, statistics = [], []

    def convolution(size: int, before: int, after: int) -> None:
        kernels.append((size, size, before, after))
        kernels.extend([(after,)] * 3)  # bias, gamma, beta
        statistics.extend([(after,)] * 2)

    convolution(7, 3, 64)
    before = 64
    for blocks, narrow in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            if not block:
                convolution(1, before, 4 * narrow)
            convolution(1, before, narrow)
            convolution(3, narrow, narrow)
            convolution(1, narrow, 4 * narrow)
            before = 4 * narrow
    kernels += [(2048, 1000), (1000,)]
    count = [TensorSpec("iteration", "int64", (), REPLICATED)]
    slots = [TensorSpec(f"momentum/{n}", "float32", shape, REPLICATED) for n, shape in enumerate(kernels)]
    weights = [TensorSpec(f"weight/{n}", "float32", shape, REPLICATED) for n, shape in enumerate(kernels)]
    return [
        *weights,
        *count,
        *slots,
        *(TensorSpec(f"bn/{n}", "float32", s, RANK_LOCAL) for n, s in enumerate(statistics)),
    ]


@pytest.mark.parametrize("world", [256, 1024])
def test_a_rank_of_hundreds_has_at_most_16_pieces_of_resnet_50(world):
    specs = resnet_50()
    assert sum(spec.nbytes for spec in specs) == pytest.approx(205e6, rel=0.01)
    plan = per_layer(specs, world)
    pieces = [sum(specs[shard.tensor].role == REPLICATED for shard in shards) for shards in plan]
    assert max(pieces) <= 16 and sum(pieces) <= 10 * world


def captured(specs, plan) -> tuple[np.ndarray, int]:
    """Bytes by capture group and rank, and all bytes."""
    updated = [i for i, spec in enumerate(specs) if spec.role == REPLICATED][::-1]
    groups = [one for one in neighbours([specs[i] for i in updated]) if one.after is Point.UPDATE]
    group = {updated[n]: number for number, one in enumerate(groups) for n in one.tensors}
    found = np.zeros((len(groups), len(plan)))
    for rank, shards in enumerate(plan):
        for shard in shards:
            if shard.tensor in group:
                found[group[shard.tensor], rank] += shard.nbytes
    return found, int(found.sum())


@pytest.mark.parametrize(
    ("world", "bound"), [(1, 1.0), (2, 1.05), (8, 1.1), (16, 1.3), (64, 2.5), (256, 2.5), (1024, 2.5)]
)
def test_the_capture_of_resnet_50_is_spread_over_the_layers_on_all_ranks(world, bound):
    """If all ranks waited at each group of layers for the one that captures most of it, they would wait for ``bound`` shares in all."""
    specs = resnet_50()
    found, total = captured(specs, per_layer(specs, world))
    assert found.max(axis=1).sum() <= bound * total / world


@pytest.mark.parametrize("world", [64, 256, 1024])
def test_the_ranks_of_one_node_capture_about_as_much_of_each_layer(world):
    """Eight ranks that follow each other: the busiest one captures at most a fourth more of a group of layers than they do on average."""
    specs = resnet_50()
    found, _ = captured(specs, per_layer(specs, world))
    nodes = found.reshape(len(found), world // 8, 8)
    assert nodes.max(axis=2).sum() <= 1.25 * nodes.mean(axis=2).sum()


@both
def test_all_ranks_make_up_for_what_rank_0_alone_saves(place):
    specs = [
        TensorSpec("kernel", "uint8", (10 << 20,), REPLICATED),
        TensorSpec("mean", "uint8", (2 << 20,), RANK_LOCAL),
    ]
    assert loads(place(specs, 3)) == [(4 << 20) // UNIT] * 3
    specs[1] = TensorSpec("mean", "uint8", (20 << 20,), RANK_LOCAL)
    assert loads(place(specs, 3)) == [(20 << 20) // UNIT, (5 << 20) // UNIT, (5 << 20) // UNIT]


def test_a_rank_that_takes_turn_after_turn_has_one_shard_of_each_tensor():
    """Rank 0 saves so much by itself that rank 1 takes all turns."""
    layers = [TensorSpec(str(n), "uint8", (20 * UNIT,), REPLICATED) for n in range(40)]
    plan = per_layer([*layers, TensorSpec("mean", "uint8", (1000 * UNIT,), RANK_LOCAL)], 2)
    assert [(shard.tensor, shard.start, shard.nbytes) for shard in plan[1]] == [(n, 0, 20 * UNIT) for n in range(40)]


def ranks_by_granule(specs, plan, granule: int) -> list[set[int]]:
    """The ranks that have bytes of each granule of the large tensors, the first of which begins at a granule."""
    begins, end = {}, 0
    for i in in_file_order(specs):
        if specs[i].role == REPLICATED and specs[i].nbytes >= SMALL:
            begins[i], end = end, end + pages(specs[i].nbytes) * UNIT
    found: list[set[int]] = [set() for _ in range(-(-end // granule))]
    for rank, shards in enumerate(plan):
        for shard in shards:
            if shard.tensor in begins:
                begin = begins[shard.tensor] + shard.start
                for number in range(begin // granule, (begin + shard.nbytes - 1) // granule + 1):
                    found[number].add(rank)
    return found


@holds(specs=anything, world=few, granule=sizes_of_granules)
def test_no_more_granules_have_two_ranks_than_there_are_ranks(specs, world, granule):
    """Each rank has less than one granule of those that level the ranks. Without these granules nearly every one has two ranks."""
    granule = choose_granule(specs, world, stripe=granule)
    if granule > UNIT:
        found = ranks_by_granule(specs, per_layer(specs, world, granule), granule)
        assert sum(len(ranks) > 1 for ranks in found) <= world


@holds(specs=models(REPLICATED), world=few, granule=sizes_of_granules)
def test_where_a_granule_is_2_percent_of_a_share_one_at_most_has_two(specs, world, granule):
    """That one is the last, which is no whole one."""
    large = sum(pages(spec.nbytes) for spec in specs if spec.nbytes >= SMALL)
    if 50 * granule <= large * UNIT // world:
        found = ranks_by_granule(specs, per_layer(specs, world, granule), granule)
        assert sum(len(ranks) > 1 for ranks in found[:-1]) == 0


@pytest.mark.parametrize("world", [2, 7, 16])
def test_contiguous_moves_a_cut_to_a_granule_that_is_near_enough(world):
    """Of one tensor, whose ranks have 8 to 200 granules each: a cut moves by 0.5 % of a share at most, so all cuts move in the end."""
    granule, moved = 64 * UNIT, []
    for share in range(8 * 64 + 21, 200 * 64, 997):
        specs = [TensorSpec("kernel", "uint8", (share * world * UNIT - 1,), REPLICATED)]
        plan = contiguous(specs, world, granule)
        cuts = [shards[0].start for shards in plan[1:]]
        for rank, cut in enumerate(cuts, 1):
            away = abs(rank * share * UNIT - round(rank * share * UNIT / granule) * granule) / UNIT
            assert (cut % granule == 0) == (away <= (share * 2 // 100 - 1) // 4), "near enough, or where it was"
        found = loads(plan)
        assert max(found) - min(found) <= max(1, 0.02 * share)
        moved.append(sum(cut % granule == 0 for cut in cuts) / len(cuts))
    assert min(moved) < 0.2 and moved[-5:] == [1.0] * 5


def nt3() -> list[TensorSpec]:
    """The tensors of CANDLE's NT3 at its published size, trained by SGD."""
    kernels = [(20, 1, 128), (10, 128, 128), (60_450 // 10 * 128, 200), (200, 20), (20, 2)]
    shapes = [shape for kernel in kernels for shape in (kernel, kernel[-1:])]
    return [*(TensorSpec(str(n), "float32", shape, REPLICATED) for n, shape in enumerate(shapes))]


@pytest.mark.parametrize(
    ("model", "world", "stripe", "bound"),
    [(resnet_50, 8, 1, 5), (resnet_50, 16, 1, 5), (nt3, 8, 1, 1), (nt3, 16, 1, 1), (nt3, 64, 1, 15), (nt3, 16, 4, 4)],
)
def test_few_stripes_of_known_models_have_bytes_of_two_ranks(model, world, stripe, bound):
    """``stripe``: MiB. docs/design.md has the table, which counts those of the head, the small tensors and the statistics too."""
    specs, nbytes = model(), stripe << 20
    assert choose_granule(specs, world, stripe=nbytes) == nbytes
    plan = per_layer(specs, world, nbytes)
    assert sum(len(ranks) > 1 for ranks in ranks_by_granule(specs, plan, nbytes)) <= bound


@pytest.mark.parametrize("granule", [4096, 16_384, 65_536, 1 << 20])
@pytest.mark.parametrize("model", [resnet_50, nt3])
def test_a_rank_of_1024_has_16_pieces_of_large_tensors_on_any_store(model, granule):
    specs = model()
    plan = per_layer(specs, 1024, choose_granule(specs, 1024, granule, granule))
    assert max(sum(specs[s.tensor].nbytes >= SMALL for s in shards) for shards in plan) <= 16


@pytest.mark.parametrize("world", [8, 16])
def test_ranks_of_a_node_capture_about_as_much_of_a_layer_in_stripes(world):
    """As without stripes, but for the granule: eight ranks wait for at most a third more than their mean of each group of layers."""
    specs = resnet_50()
    found, total = captured(specs, per_layer(specs, world, 1 << 20))
    nodes = found.reshape(len(found), world // 8, 8)
    assert nodes.max(axis=2).sum() <= 1.34 * nodes.mean(axis=2).sum()
    assert found.max(axis=1).sum() <= 1.5 * total / world


@pytest.mark.parametrize(
    ("world", "block", "stripe", "found"),
    [
        (8, UNIT, None, UNIT),
        (8, UNIT, 1 << 20, 1 << 20),  # 26 MB for each rank
        (8, UNIT, 4 << 20, UNIT),  # six stripes for each
        (8, 2 << 20, 4 << 20, 2 << 20),
        (1024, 16 << 10, 1 << 20, 16 << 10),
        (1, 1 << 20, 1 << 20, UNIT),  # nothing is cut
        (2, UNIT, 3 << 20, UNIT),
        (2, 1000, 0, UNIT),
        (2, -UNIT, -(1 << 20), UNIT),
        (1, UNIT, 128 << 20, UNIT),
    ],
)
def test_a_rank_has_8_granules_or_cuts_are_at_pages(world, block, stripe, found):
    assert choose_granule(resnet_50(), world, block, stripe) == found


def test_the_first_large_tensor_is_the_first_in_the_file_that_is_not_small():
    specs = [TensorSpec("a", "uint8", (3,), REPLICATED), TensorSpec("b", "uint8", (SMALL,), REPLICATED)]
    assert first_large(specs) == 1
    assert first_large(specs[:1]) is None
    assert first_large([replace(spec, role=RANK_LOCAL) for spec in specs]) is None


# SHA-256 of the plans of ``any_models`` for several numbers of ranks, by the placement that knew no granules.
PLANS = {
    "per_layer": "2b54da751dd19a23ec78a4496109ae7b59178aac6ae5702fc5ec9c6812a15bed",
    "contiguous": "411b9c3370415c4dbf205ec7d645ac2b4983b4ae8213d6910863a70ee22c235e",
}


def any_models() -> list[list[TensorSpec]]:
    """Models of all shapes: few and many tensors, small and large."""
    roles = [REPLICATED] * 6 + [RANK_LOCAL, PER_RANK]
    size = lambda seed, n: (n * n * 7919 + seed * 104_729) ** 2 % [SMALL, 400_000, 9_000_000][seed % 3]  # noqa: E731
    models = [
        [TensorSpec(str(n), "uint8", (size(seed, n),), roles[(n * n + seed) % 8]) for n in range(5 * seed)]
        for seed in range(1, 13)
    ]
    return [resnet_50(), nt3(), *models]


@pytest.mark.parametrize("name", PLANS)
def test_plans_in_pages_are_those_that_earlier_versions_made(name):
    """A store with larger granules changes nothing for the others."""
    digest = hashlib.sha256()
    for specs in any_models():
        for world in (1, 2, 3, 8, 16, 64, 70, 256, 1024):
            plan = PLACEMENTS[name](specs, world)
            digest.update(json.dumps([[(s.tensor, s.start, s.stop) for s in shards] for shards in plan]).encode())
    assert digest.hexdigest() == PLANS[name]
