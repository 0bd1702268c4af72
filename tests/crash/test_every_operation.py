"""A crash at every single file operation of a job, of its processes alone or of the machine's power."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

from deepfreeze.store.writable_run import WritableRun
from tests.jobs import recorded
from tests.support import page_cache, processes, restart
from tests.support.ranks import check_checkpoint
from tests.support.seed import SEED

pytestmark = [pytest.mark.crash, pytest.mark.slow]
DRAWS = int(os.environ.get("DEEPFREEZE_TEST_DRAWS", "3"))  # subsets of what was not synced, per point
JOB = Path(recorded.__file__)
MEMORY = "/dev/shm"
DIRECT = 3  # OpenMode::kDirect
STEPS_AFTER = (90, 100)  # of the new job, beyond any other

# Each rank is a client of its own; the machine that crashes is the server, with all of them.
ON_NETWORK = " on a network file system"
# name: (ranks, the steps of each attempt in turn)
SCENARIOS = {
    "one rank": (1, [[10, 20, 30]]),
    "three ranks": (3, [[10, 20, 30]]),
    "steps that overlap": (3, [[[10, 20, 30]]]),
    "a second attempt at the same steps": (2, [[10, 20], [20, 30]]),
    "syncs that fail": (1, [[10, 20, 30, 40, 50, 60, 70]]),
    f"two ranks{ON_NETWORK}": (2, [[10, 20]]),
}
# Of the run when step 20 has its name; of a model file; of a partial directory, with and without a manifest.
FAILING = ["fsync_dir::6", "fdatasync:step-0000000030:1", "fsync_dir:step-0000000050:2", "fsync_dir:step-0000000060:1"]
FAULTS = {"syncs that fail": ",".join(f"fail=EIO:{call}" for call in FAILING)}
# Three checkpoints on their way at once, of which the first is committed last, or the second, or which end as they happen to.
AT_ONCE = 3
OUT_OF_ORDER = {
    "the oldest last": "delay=50:fdatasync:step-0000000010:1+",
    "the middle one last": "delay=50:pwrite:step-0000000020:1+,delay=30:rename:step-0000000010:1+",
    "as they happen to": "",
}
SELDOM = [pytest.param("steps that overlap", marks=pytest.mark.full)]
OFTEN = [name for name in SCENARIOS if name != "steps that overlap"]
NETWORKED = [pytest.param(name + ON_NETWORK, marks=pytest.mark.full) for name in SCENARIOS if ON_NETWORK not in name]


@pytest.fixture
def folder():
    """A folder in memory, where many small files cost little."""
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="deepfreeze-test-") as path:
        yield Path(path)


def record(
    folder: Path,
    library: str,
    world: int,
    attempts: list,
    faults: str = "",
    network: bool = False,
    transfers: int = 1,
    cached: bool = False,
) -> tuple[page_cache.Disk, list[page_cache.Op]]:
    """Runs the attempts one after the other; returns the files as they were before, and what was done to them. A call that fails
    does nothing."""
    run = WritableRun.open_or_make(folder / "run")
    for rank in range(world):
        (folder / f"local-{rank}").mkdir()
    disk, log = page_cache.Disk(*roots(folder, world)), folder / "log"
    for number, plan in enumerate(attempts, 1):
        environment = {**os.environ, "DEEPFREEZE_LIBRARY": library, "DEEPFREEZE_RECORD": str(log)}
        environment["DEEPFREEZE_FAULT"] = faults
        environment["DEEPFREEZE_NETWORK"] = str(folder / "run") if network else ""
        command = [
            sys.executable,
            "-S",
            JOB,
            folder,
            world,
            number,
            run.run_id,
            json.dumps(plan),
            transfers,
            int(cached),
        ]
        processes.run(list(map(str, command)), env=environment, check=True, timeout=120)
    return disk, page_cache.read_log(log)


def roots(folder: Path, world: int) -> list[Path]:
    return [folder / "run", *(folder / f"local-{rank}" for rank in range(world))]


class Oracle:
    """Reopens what a crash left, as the next start does, and says what is wrong with it."""

    def __init__(self, folder: Path, world: int) -> None:
        self._folder, self._world, self._tried = folder, world, 0
        self._known: set[bytes] = set()
        self.distinct = 0

    def check(self, state: dict[str, bytes | None], promised: int) -> None:
        """promised: the newest step that must be there, or 0."""
        key = hashlib.sha256(repr((promised, state)).encode()).digest()
        if key in self._known:
            return
        self._known.add(key)
        self.distinct += 1
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            there = Path(place)
            old, new = roots(self._folder, self._world), roots(there, self._world)
            page_cache.write_out(state, {str(a): str(b) for a, b in zip(old, new)})
            before = counted(there / "run")
            restart.reopen(there, self._world)
            after = counted(there / "run")
            assert before.keys() <= after.keys(), f"lost {sorted(before.keys() - after.keys())} in the recovery"
            assert max(after, default=0) >= promised, f"the newest is {max(after, default=0)}"
            left = restart.leftovers(there / "run")
            assert not left, f"left behind: {left}"
            restart.go_on(there, STEPS_AFTER, recorded.FILE_SIZE, recorded.KEEP)
            assert list(counted(there / "run"))[-2:] == list(STEPS_AFTER)


def counted(run: Path) -> dict[int, int]:
    """{step: attempt} of all that counts as a checkpoint, each compared byte by byte with what had to be written."""
    return dict(
        check_checkpoint(WritableRun.open(run).step_path(step), run_id=None)
        for step in WritableRun.open(run).committed()
    )


def halves(op: page_cache.Op) -> list[bool]:
    """Half-way through an operation, if there is such a moment, and after it."""
    return [False] if op.kind != "W" or len(op.data) < 2 else [True, False]


@pytest.mark.parametrize("name", [*OFTEN, *SELDOM, *NETWORKED])
def test_a_crash_at_any_operation_loses_nothing_that_was_promised(
    folder, testing_library, record_property, points, name
):
    """The job is recorded once; a point is a crash of the processes or of the power, and the start that follows it."""
    of = name if name in SCENARIOS else name.removesuffix(ON_NETWORK)
    world, attempts = SCENARIOS[of]
    disk, ops = record(folder, testing_library, world, attempts, FAULTS.get(of, ""), ON_NETWORK in name)
    said = sweep(folder, disk, ops, world, points, record_property, name)
    assert of not in FAULTS or said == [10, 40, 70], "each of the failing calls cost one promise"


@pytest.mark.parametrize(
    "name", [name if name == "the oldest last" else pytest.param(name, marks=pytest.mark.full) for name in OUT_OF_ORDER]
)
def test_a_killed_job_with_three_uncommitted_restores_the_newest_complete_one(
    folder, testing_library, record_property, points, name
):
    """Whichever is committed first. An older one that is whole by then is a checkpoint too, or is gone without a trace."""
    disk, ops = record(folder, testing_library, 2, [[[10, 20, 30]]], OUT_OF_ORDER[name], transfers=AT_ONCE)
    commits = [
        op.second
        for op in ops
        if op.kind == "R"
        and op.path.count(".partial-") == 1
        and "/step-" in op.second
        and "." not in Path(op.second).name
    ]
    sweep(folder, disk, ops, 2, points, record_property, name)
    if OUT_OF_ORDER[name]:
        assert commits != sorted(commits), "they were committed out of order"


@pytest.mark.full
@pytest.mark.parametrize("io", ["direct", "buffered"])
def test_every_storage_path_passes_the_same_suite(folder, testing_library, record_property, points, io):
    """``Engine(io=)``: a crash at every operation, and each call that fails."""
    disk, ops = record(folder, testing_library, 3, [[10, 20, 30]], cached=io == "buffered")
    model = [op.mode for op in ops if op.kind == "O" and op.path.endswith("model.weights.h5")]
    assert (DIRECT in model) == (io == "direct")
    sweep(folder, disk, ops, 3, points, record_property, f"three ranks, {io}")
    variables = {"DEEPFREEZE_TEST_EVERY": str(points.every), "DEEPFREEZE_TEST_FIRST": str(points.first)}
    if io == "buffered":
        variables["DEEPFREEZE_TEST_CACHED"] = "1"
    program = Path(testing_library).with_name("fault_sweep_test")
    done = processes.run([program], env={**os.environ, **variables}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def sweep(folder, disk, ops, world, points, record_property, name) -> list[int]:
    """Crashes at every operation. Returns the steps of which the engine promised that they are external, in the order of the promises."""
    print(f"seed {SEED} (DEEPFREEZE_TEST_SEED)")
    oracle, passed = Oracle(folder, world), Counter()
    moments = [(number, op, half) for number, op in enumerate([page_cache.Op("mark"), *ops]) for half in halves(op)]
    due = set(points(range(len(moments))))
    promised, said = {"local": 0, "external": 0}, []
    try:
        for at, (number, op, half) in enumerate(moments):
            if not half:
                disk.apply(op)
            with disk.half(op) if half else nullcontext():
                if op.kind == "mark" and op.path:
                    level, step = op.path.split()
                    said += [int(step)] if level == "external" else []
                    promised[level] = max(promised[level], int(step))
                if at not in due:
                    continue
                where = f"seed {SEED}, {name}, {'half-way through' if half else 'after'} operation {number}: {op}"
                crashes = {"killed": [(disk.killed(), max(promised.values()))]}
                lost = [None, *(random.Random(f"{SEED} {number} {half} {n}") for n in range(DRAWS))]
                crashes["lost power"] = [(disk.lost_power(choose), promised["external"]) for choose in lost]
                for kind, states in crashes.items():
                    for state, newest in states:
                        try:
                            oracle.check(state, newest)
                        except Exception as error:
                            raise AssertionError(f"{where}; {kind}: {error}") from error
                        passed[kind] += 1
    finally:
        per_moment = 2 + DRAWS
        kinds = ", ".join(f"{count} {kind}" for kind, count in passed.items())
        outcome = "all passed" if passed.total() == len(due) * per_moment else f"failed after {passed.total()}"
        tried = f"{len(due) * per_moment} of {len(moments) * per_moment} points, {outcome}"
        record_property("points", f"crash sweep, {name}: {tried} ({kinds}; {oracle.distinct} different)")
    assert promised["external"] >= 20, "the record holds the promises"
    assert passed.total() == len(due) * per_moment and len(moments) * per_moment > 500
    return said
