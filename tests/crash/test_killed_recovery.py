"""A start that is itself killed, before every call that it makes to the system: the next one finds all that the first one would
have found."""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
import sys
from pathlib import Path

import pytest

from deepfreeze.format import names
from deepfreeze.format.run_file import Parent
from deepfreeze.store.writable_run import WritableRun
from tests.crash.test_every_operation import SCENARIOS, counted, folder, record, roots
from tests.support import files, killed, page_cache, processes, restart
from tests.support.ranks import slots

pytestmark = pytest.mark.crash
__all__ = ["folder"]


@pytest.fixture
def engine(testing_library, tmp_path) -> str:
    """The path of a testing library that this process never loads: each child has one of its own."""
    return str(shutil.copy(testing_library, tmp_path / "libdeepfreeze_killing.so"))


def put(state: dict[str, bytes | None], folder: Path, there: Path, world: int) -> None:
    """Makes the run and the local tiers below ``there`` as they were below ``folder``."""
    shutil.rmtree(there, ignore_errors=True)
    moves = zip(roots(folder, world), roots(there, world), strict=True)
    page_cache.write_out(state, {str(a): str(b) for a, b in moves})


def kind(state: dict[str, bytes | None]) -> tuple:
    """What a start has to recover from: partial directories, their records and manifests, and trash."""
    partial = [path for path in state if ".partial-" in path]
    ends = [path.rpartition("/")[2] for path in partial]
    trash = any("/.trash-" in path for path in state)
    return (
        sum(".partial-" in end for end in ends),
        sum(end.endswith(".record") for end in ends),
        "manifest.json" in ends,
        trash,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["three ranks", pytest.param("a second attempt at the same steps", marks=pytest.mark.full)]
)
def test_a_start_that_is_killed_before_any_call_loses_nothing(
    folder, testing_library, engine, record_property, points, name
):
    world, attempts = SCENARIOS[name]
    disk, ops = record(folder, testing_library, world, attempts)
    states = {}  # the last one of each kind: it has the most behind it
    for op in ops:
        disk.apply(op)
        states[kind(disk.killed())] = disk.killed(), op
    tried, there = 0, folder / "there"
    for what, (state, op) in states.items():

        def anew(state=state):
            put(state, folder, there, world)

        anew()
        restart.reopen(there, world)
        wanted = counted(there / "run")  # what a start finds that nobody kills
        for call in killed.before_each_call(lambda: restart.reopen(there, world), anew, engine, points):
            where = f"{name}, {what}, after {op}; the start killed before {call}"
            restart.reopen(there, world)
            assert counted(there / "run") == wanted, where
            left = restart.leftovers(there / "run")
            assert not left and not slots(there), f"{where}: left behind {left}, {slots(there)}"
            tried += 1
    record_property("points", f"crash sweep of a start, {name}: {tried} kills, {points}, {len(states)} states")
    assert len(states) >= 7 and tried > (30 if points.every == 1 else 3) * len(states)


class Back(restart.Newest):
    """Values of step 20, with which training goes on whatever is there."""

    def now(self):
        return 20


def found(run: Path) -> dict[int, dict[str, bytes]]:
    """The files of each checkpoint, in the run or moved aside, by step."""
    places = {
        run: names.parse_step_dir,
        run / names.ABANDONED_DIR: lambda name: names.parse_abandoned_dir(name)[0],
        run / names.DAMAGED_DIR: lambda name: names.parse_damaged_dir(name)[0],
    }
    steps = {}
    for place, parse in places.items():
        for path in place.iterdir() if place.exists() else ():
            if (step := parse(path.name)) is not None:
                assert step not in steps, f"step {step} is there twice"
                whole = [file for file in path.iterdir() if file.name != names.MANIFEST_FILE]  # says when, too
                # Nobody reads a rank's own record any more, and a killed start may leave some.
                whole = [file for file in whole if names.parse_record_file(file.name) is None]
                steps[step] = {file.name: file.read_bytes() for file in whole}
    return steps


@pytest.mark.slow
def test_a_start_with_everything_to_do_killed_anywhere_loses_nothing(
    folder, testing_library, engine, record_property, points
):
    """A dead job holds the lock, step 35 is damaged, steps 30 and 40 are newer than the values, 40 is whole and not committed, a
    part of step 50 is there, and trash."""
    world, attempts = SCENARIOS["three ranks"]
    disk, ops = record(folder, testing_library, world, [*attempts, [40]])
    ending = next(at for at, op in enumerate(ops) if op.kind == "R" and op.second.endswith(names.step_dir(40)))
    for op in ops[:ending]:
        disk.apply(op)
    state, there = disk.killed(), folder / "there"
    run = there / "run"
    with processes.child([sys.executable, "-S", "-c", ""]) as dead:
        dead.wait()
    holder = {"host": socket.gethostname(), "pid": dead.pid, "since": files.CREATED}

    def anew():
        put(state, folder, there, world)
        for other in (names.step_dir(35), names.partial_dir(50, files.ATTEMPT), names.trash_dir(10, files.ATTEMPT)):
            shutil.copytree(run / names.step_dir(20), run / other)
        (run / names.LOCK_FILE).write_text(json.dumps(holder))

    def start():
        restart.reopen(there, world, values=lambda rank: Back(), resume="off")

    anew()
    before = found(run)
    assert list(WritableRun.open(run).newest_and_invalid()[1]) == [35] and sorted(before) == [20, 30, 35]
    start()
    after = found(run)
    tried, met = 0, set()
    for call in killed.before_each_call(start, anew, engine, points):
        kept = found(run)
        assert before.items() <= kept.items(), call
        opened = WritableRun.open(run)
        met.add((len(opened.damaged()), 30 in opened.committed(), 40 in opened.committed()))
        start()
        assert found(run) == after and counted(run) == {20: 1}, call
        assert [step for step, _ in opened.damaged()] == [35] and sorted(after) == [20, 30, 35, 40], call
        assert not restart.leftovers(run) and not list(there.glob("local-*/*/*")), call
        tried += 1
    record_property("points", f"crash sweep of a start with everything to do: {tried} kills, {points}")
    phases = {
        (0, True, False),  # before step 35 is moved away
        (1, True, False),  # before step 40 is committed
        (1, True, True),  # before step 30 is moved away
        (1, False, True),
        (1, False, False),  # at the end
    }
    assert met == phases if points.every == 1 else met <= phases and len(met) > 1


def test_a_start_killed_while_it_writes_the_parent_leaves_a_whole_one(tmp_path):
    """A start that is killed while it writes the run's parent leaves the old run file or the new one, whole."""
    run = WritableRun.open_or_make(tmp_path / "run")
    files.write_checkpoint(run.path, 40)
    old, new = (Parent(f"/runs/{name}", "a" * 32, 40, "b" * 32) for name in ("old", "new"))
    seeded, met = dataclasses.replace(run, parent=old), []

    def anew():
        WritableRun.open(run.path).set_parent(old)

    def change():
        WritableRun.open(run.path).set_parent(new)

    for call in killed.before_each_call(change, anew):
        found = WritableRun.open_or_make(run.path)
        assert found in (seeded, dataclasses.replace(run, parent=new)), call
        met.append((found.parent == new, (run.path / "run.json.tmp").exists()))
        # What is left beside it is in nobody's way.
        assert (
            found.set_parent(None) == WritableRun.open(run.path) == run and not (run.path / "run.json.tmp").exists()
        ), call
    assert met[0] == (False, False) and met[-1] == (True, False)
    assert (False, True) in met and met.count((True, False)) >= 2, "killed before, and after, the new one has the name"
