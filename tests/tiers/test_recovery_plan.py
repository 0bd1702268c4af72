"""What a start decides about what dead attempts left, for any leftovers; and what becomes of them, in directories."""

import itertools
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import strategies as st

from deepfreeze.format import names
from deepfreeze.notices import unheard
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.tiers import leftovers, rescue
from deepfreeze.tiers.local_tier import LocalTier
from deepfreeze.tiers.recovery_plan import LeftoverSlot, NodeSlot, PartialState, plan_recovery
from tests.support import files
from tests.support.properties import holds

ATTEMPTS = ["a" * 32, "b" * 32]
MEMORY = "/dev/shm"

steps = st.integers(1, 4)
attempts = st.sampled_from(ATTEMPTS)
# Mostly of one kind: then there is something to put together.
shapes = st.sampled_from([(3, 100, "s")] * 4 + [(2, 100, "s"), (3, 101, "s"), (3, 100, "t")])


def _partial(step: int, attempt: str, ranks: frozenset[int], shape: tuple[int, int, str]) -> PartialState:
    world, size, structure = shape
    valid = frozenset(rank for rank in ranks if rank < world)
    return PartialState(step, attempt, valid, world, size, structure) if valid else PartialState(step, attempt)


def _slot(step: int, attempt: str, rank: int, shape: tuple[int, int, str], node: str, index: int) -> NodeSlot:
    world, size, structure = shape
    path = f"/local/{files.slot_name(rank, attempt, index)}"
    return NodeSlot(node, LeftoverSlot(path, step, rank % world, world, size, size, files.RUN_ID, attempt, structure))


partials = st.lists(
    st.builds(_partial, steps, attempts, st.frozensets(st.integers(0, 2)), shapes),
    max_size=5,
    unique_by=lambda one: (one.step, one.attempt),
)
slots = st.lists(
    st.builds(_slot, steps, attempts, st.integers(0, 2), shapes, st.sampled_from(["n0", "n1"]), st.integers(0, 1)),
    max_size=12,
    unique_by=lambda one: (one.node, one.slot.path),
)
# Of one checkpoint, some ranks' several times over.
alike = st.lists(
    st.builds(
        _slot,
        st.just(1),
        st.just("a" * 32),
        st.integers(0, 2),
        st.just((3, 100, "s")),
        st.sampled_from(["n0", "n1"]),
        st.integers(0, 3),
    ),
    min_size=6,
    max_size=14,
    unique_by=lambda one: (one.node, one.slot.path),
)
# Two attempts at one step, of which often both are complete.
full = (3, 100, "s")
rivals = st.tuples(
    *(
        st.builds(_partial, st.just(1), st.just(one), st.frozensets(st.integers(0, 2)), st.just(full))
        for one in ATTEMPTS
    )
).map(list)
spares = st.permutations([_slot(1, one, rank, full, "n0", 0) for one in ATTEMPTS for rank in range(3)]).flatmap(
    lambda them: st.integers(3, 6).map(lambda count: them[:count])
)
left_behind = st.tuples(partials, slots) | st.tuples(rivals, spares)
newest = st.none() | st.integers(0, 4)


def complete(found: list[PartialState], reports: list[NodeSlot]) -> dict[tuple[int, str], set[int]]:
    """By (step, attempt) of what can be finished, the ranks without a record: all there is agrees, and no rank lacks."""
    can = {}
    for key in itertools.product(range(1, 5), ATTEMPTS):
        parts = [one for one in found if (one.step, one.attempt) == key and one.ranks]
        copies = [one.slot for one in reports if (one.slot.step, one.slot.attempt) == key]
        kinds = {(one.world_size, one.file_size, one.structure) for one in [*parts, *copies]}
        have = {rank for one in parts for rank in one.ranks}
        if len(kinds) == 1 and have | {one.rank for one in copies} == set(range(min(kinds)[0])):
            can[key] = set(range(min(kinds)[0])) - have
    return can


@holds(
    examples=80,
    before=newest,
    left=left_behind,
    taken=st.frozensets(steps),
    told=st.frozensets(st.tuples(steps, attempts)),
)
def test_each_newer_step_that_is_complete_is_finished_and_nothing_else(before, left, taken, told):
    """And an older one that needs no slot, unless a checkpoint has its place, or it was told to have failed. Finished oldest first, one
    attempt for each step, the one that lacks fewest records; all other leftovers are cleared, and nothing that is not left over is ever
    named."""
    found, reports = left
    plan, can = plan_recovery(before, found, reports, taken, told), complete(found, reports)

    def finishes(key: tuple[int, str], lacks: set[int]) -> bool:
        return before is None or key[0] > before or (key[0] not in taken and key not in told and not lacks)

    may = {key: lacks for key, lacks in can.items() if finishes(key, lacks)}
    assert [step for step, _ in plan.finish] == sorted({step for step, _ in may})
    for step, attempt in plan.finish:
        assert len(may[step, attempt]) == min(len(lacks) for key, lacks in may.items() if key[0] == step)
    assert plan.clear == sorted({(one.step, one.attempt) for one in found} - set(plan.finish))


@holds(examples=80, before=newest, found=partials, reports=slots | alike)
def test_each_rank_without_a_record_has_one_slot_copied_from_where_it_is(before, found, reports):
    """Of several the one of the first node, and there of the first path: all nodes have to agree, and all starts."""
    plan, can = plan_recovery(before, found, reports), complete(found, reports)
    where = {(one.node, one.slot.path): one.slot for one in reports}
    copied = sorted((node, path) for node, paths in plan.slots.items() for path in paths)
    wanted = []
    for key in plan.finish:
        for rank in can[key]:
            mine = [place for place, one in where.items() if (one.step, one.attempt, one.rank) == (*key, rank)]
            wanted.append(min(mine))
    assert copied == sorted(wanted)


@holds(before=newest, found=partials, reports=slots, order=st.randoms(use_true_random=False))
def test_the_decision_does_not_depend_on_the_order_of_what_was_found(before, found, reports, order):
    expected = plan_recovery(before, found, reports)
    for one in (found, reports):
        order.shuffle(one)
    assert plan_recovery(before, found + found[:1], reports + reports[:1]) == expected


def _made(attempt: str) -> files.Sample:
    return files.sample(seed=ATTEMPTS.index(attempt))


def _write_slot(local: Path, step: int, attempt: str, rank: int) -> None:
    made = _made(attempt)
    extents = [(at, made.content[at : at + size]) for at, size in made.extents[rank]]
    head = files.identity(
        structure=made.hash, step=step, rank=rank, world=2, file_size=len(made.content), extents=len(extents), attempt=attempt
    )  # fmt: skip
    data = files.slot(head, extents, made.private(rank))
    (local / files.slot_name(rank, attempt, step)).write_bytes(data)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _start(run: WritableRun, local: Path) -> rescue.Finished:
    """What a start of one node does, in its order."""
    found = leftovers.leftover_slots(local, unheard)
    plan = rescue.plan(run, [("n0", slot) for slot in found])
    assert rescue.copy_slots(plan, "n0", run.path, {slot.path: LocalTier(local, None) for slot in found}) == []
    done = rescue.finish(plan, run, unheard)
    leftovers.clear_slots(local)
    return done


keys = st.tuples(steps, attempts)
ranks = st.sets(st.integers(0, 1))


@holds(
    examples=15,
    committed=st.dictionaries(steps, attempts, max_size=2),
    records=st.dictionaries(keys, ranks, max_size=4),
    copies=st.dictionaries(keys, ranks, max_size=4),
    trash=st.sets(keys, max_size=2),
)
def test_a_start_keeps_what_is_committed_finishes_what_is_whole_and_clears(committed, records, copies, trash):
    """With the engine, two ranks, both slots on one node. A second start finds nothing to do."""
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="deepfreeze-test-") as folder:
        run, local = WritableRun.open(files.write_run(Path(folder) / "run")), Path(folder) / "local"
        local.mkdir(mode=0o700)
        for step, attempt in committed.items():
            files.write_checkpoint(run.path, step, _made(attempt), attempt)
        for (step, attempt), there in records.items():
            shown = files.write_partial(run.path, step, _made(attempt), sorted(there), attempt)
            model = bytearray(_made(attempt).content)
            for rank in {0, 1} - there:  # what that rank has not written
                for at, size in _made(attempt).extents[rank]:
                    model[at : at + size] = bytes(size)
            (shown / names.MODEL_FILE).write_bytes(model)
        for (step, attempt), there in copies.items():
            for rank in there:
                _write_slot(local, step, attempt, rank)
        for step, attempt in trash:
            (run.path / names.trash_dir(step, attempt)).mkdir()
            (run.path / names.trash_dir(step, attempt) / names.MODEL_FILE).write_bytes(b"a part")
        before = {step: _contents(run.step_path(step)) for step in committed}
        whole = {key for key in {*records, *copies} if records.get(key, set()) | copies.get(key, set()) == {0, 1}}
        finished = {step for step, _ in whole if step > max(committed, default=0)}
        # An older one, which a newer one has overtaken, is in the run as a whole; slots are not copied for it.
        finished |= {step for (step, _), there in records.items() if there == {0, 1} and step not in committed}

        done = _start(run, local)

        assert {step for step, _ in done.committed} == finished and set(done.committed) <= whole and not done.lost
        assert run.committed() == sorted({*committed, *finished})
        assert {step: _contents(run.step_path(step)) for step in committed} == before
        for step, attempt in done.committed:
            assert run.manifest(step).attempt == attempt
            assert (run.step_path(step) / names.MODEL_FILE).read_bytes() == _made(attempt).content
        assert sorted(os.listdir(run.path)) == sorted(
            ["run.json", *(["structures"] if committed else []), *map(names.step_dir, run.committed())]
        )
        assert os.listdir(local) == []
        left = {step: _contents(run.step_path(step)) for step in run.committed()}
        assert _start(run, local) == rescue.Finished([], [], [])
        assert {step: _contents(run.step_path(step)) for step in run.committed()} == left
        shutil.rmtree(run.path)
